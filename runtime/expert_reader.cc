#include "runtime/expert_reader.h"

#include <algorithm>

#include "schema/compact_scales.h"
#include "schema/error.h"

namespace k3 {

int expert_read_depth(int64_t expert_bytes) {
  constexpr int64_t kBytesInFlight = int64_t{64} << 20;
  return static_cast<int>(std::clamp<int64_t>(kBytesInFlight / expert_bytes, 4, 64));
}

ExpertReader::ExpertReader(const PackReader& pack, ReadPath path, bool check_hashes, int64_t slots,
                           int64_t largest_extent_bytes)
    : pack_(pack),
      check_hashes_(check_hashes),
      queue_(pack.file(), path, expert_read_depth(largest_extent_bytes)),
      jobs_(static_cast<size_t>(slots)) {
  const std::vector<PackBank>& banks = pack.index().content.banks;
  if (std::any_of(banks.begin(), banks.end(), [](const PackBank& bank) {
        return bank.layout == Layout::kExpertBandsCompact;
      })) {
    staging_ = ExpertSlots(queue_.depth(), largest_extent_bytes);
    for (int64_t i = 0; i < queue_.depth(); ++i) unused_staging_.push_back(i);
  }
  thread_ = std::thread([this] { serve(); });
}

ExpertReader::~ExpertReader() {
  {
    const Lock lock(mutex_);
    ends_ = true;
    wake_if_asleep();
  }
  thread_.join();
}

void ExpertReader::start(int64_t slot, const PackBank& bank, int64_t position, std::byte* dst,
                         Urgency urgency) {
  const Lock lock(mutex_);
  Job& job = jobs_[static_cast<size_t>(slot)];
  K3_CHECK(job.state == State::kFree || job.state == State::kDone);
  job = {.state = State::kQueued,
         .bank = &bank,
         .position = position,
         .dst = dst,
         .staging = -1,
         .fault = {}};
  (urgency == Urgency::kWanted ? wanted_ : guessed_).push_back(slot);
  wake_if_asleep();
}

bool ExpertReader::is_busy(int64_t slot) {
  const Lock lock(mutex_);
  const State state = jobs_[static_cast<size_t>(slot)].state;
  return state != State::kFree && state != State::kDone;
}

void ExpertReader::make_wanted(int64_t slot) {
  const Lock lock(mutex_);
  if (std::erase(guessed_, slot) > 0) wanted_.push_back(slot);
}

bool ExpertReader::cancel(int64_t slot) {
  const Lock lock(mutex_);
  if (std::erase(guessed_, slot) == 0) return false;
  jobs_[static_cast<size_t>(slot)].state = State::kFree;
  return true;
}

void ExpertReader::settle() {
  Lock lock(mutex_);
  for (const Job& job : jobs_) wait_for(lock, job);
}

void ExpertReader::finish(std::span<const int64_t> slots) {
  Lock lock(mutex_);
  for (const int64_t slot : slots) {
    const Job& job = jobs_[static_cast<size_t>(slot)];
    wait_for(lock, job);
    if (!job.fault.empty()) throw Error(job.fault);
  }
}

void ExpertReader::wait_for(Lock& lock, const Job& job) {
  while (job.state != State::kFree && job.state != State::kDone) {
    if (!check_one(lock)) done_.wait(lock);
  }
}

void ExpertReader::serve() {
  Lock lock(mutex_);
  while (!ends_) {
    feed_queue();
    asleep_ = arrived_.empty();
    const bool wait = asleep_;
    lock.unlock();
    const std::optional<ReadQueue::Done> read = queue_.next(wait);
    lock.lock();
    asleep_ = false;
    if (read.has_value()) {
      Job& job = jobs_[static_cast<size_t>(read->tag)];
      job.state = State::kArrived;
      job.fault = read->fault;
      arrived_.push_back(read->tag);
      done_.notify_all();  // whoever waits may help
    } else {
      check_one(lock);
    }
  }
}

void ExpertReader::feed_queue() {
  while (!queue_.is_full()) {
    std::deque<int64_t>& next = wanted_.empty() ? guessed_ : wanted_;
    if (next.empty()) return;
    Job& job = jobs_[static_cast<size_t>(next.front())];
    std::byte* dst = job.dst;
    if (job.bank->layout == Layout::kExpertBandsCompact) {
      if (unused_staging_.empty()) return;  // until one that has arrived is checked
      job.staging = unused_staging_.back();
      unused_staging_.pop_back();
      dst = staging_.at(job.staging);
    }
    job.state = State::kReading;
    const Extent& extent = job.expert().extent;
    queue_.start(next.front(), extent.offset_bytes, extent.length_bytes, dst);
    next.pop_front();
  }
}

void ExpertReader::wake_if_asleep() {
  if (!asleep_) return;
  asleep_ = false;
  queue_.wake();
}

// Checks one expert that has arrived, without the lock. False when there is none.
bool ExpertReader::check_one(Lock& lock) {
  if (arrived_.empty()) return false;
  Job& job = jobs_[static_cast<size_t>(arrived_.front())];
  arrived_.pop_front();
  lock.unlock();
  std::string fault = fault_of(job);
  lock.lock();
  job.fault = std::move(fault);
  job.state = State::kDone;
  if (job.staging >= 0) {
    unused_staging_.push_back(job.staging);
    wake_if_asleep();
  }
  done_.notify_all();
  return true;
}

// What is wrong with an expert that has arrived, empty when nothing is; then it lies in its slot as
// the kernels read it.
std::string ExpertReader::fault_of(const Job& job) const {
  if (!job.fault.empty()) return job.fault;
  const PackExpert& expert = job.expert();
  const std::span<const std::byte> stored(job.staging < 0 ? job.dst : staging_.at(job.staging),
                                          static_cast<size_t>(expert.extent.length_bytes));
  if (check_hashes_) {
    try {
      pack_.expect_hash(expert.extent,
                        "layer " + std::to_string(job.bank->layer) + " expert " +
                            std::to_string(expert.source_id),
                        stored);
    } catch (const Error& error) {
      return error.what();
    }
  }
  if (job.staging >= 0) {
    const ExpertBands place = resident_bands(pack_.config(), *job.bank);
    expand_scales(place, expert.least_exponent, stored,
                  {job.dst, static_cast<size_t>(place.extent_bytes())});
  }
  return "";
}

}  // namespace k3
