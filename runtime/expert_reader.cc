#include "runtime/expert_reader.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <optional>

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
}

void ExpertReader::start(int64_t slot, const PackBank& bank, int64_t position, std::byte* dst,
                         Urgency urgency) {
  K3_CHECK(!is_busy(slot));
  job(slot) = {.state = State::kQueued,
               .urgency = urgency,
               .bank = &bank,
               .position = position,
               .dst = dst,
               .staging = -1,
               .fault = {}};
  (urgency == Urgency::kWanted ? wanted_ : guessed_).push_back(slot);
}

void ExpertReader::advance() {
  while (queue_.in_flight() < queue_.depth()) {
    std::deque<int64_t>& next = wanted_.empty() ? guessed_ : wanted_;
    if (next.empty() || (wanted_.empty() && wanted_in_flight_ > 0)) break;
    Job& first = job(next.front());
    std::byte* dst = first.dst;
    if (first.bank->layout == Layout::kExpertBandsCompact) {
      if (unused_staging_.empty()) break;  // until what has arrived is checked
      first.staging = unused_staging_.back();
      unused_staging_.pop_back();
      dst = staging_.at(first.staging);
    }
    first.state = State::kReading;
    if (first.urgency == Urgency::kWanted) ++wanted_in_flight_;
    const Extent& extent = first.expert().extent;
    queue_.start(next.front(), extent.offset_bytes, extent.length_bytes, dst);
    next.pop_front();
  }
  queue_.submit();
}

bool ExpertReader::is_busy(int64_t slot) const {
  const State state = jobs_[static_cast<size_t>(slot)].state;
  return state != State::kFree && state != State::kDone;
}

void ExpertReader::make_wanted(int64_t slot) {
  Job& right = job(slot);
  K3_CHECK(right.urgency == Urgency::kGuessed);
  right.urgency = Urgency::kWanted;
  if (right.state == State::kReading) ++wanted_in_flight_;
  if (std::erase(guessed_, slot) > 0) wanted_.push_back(slot);
}

bool ExpertReader::cancel(int64_t slot) {
  if (std::erase(guessed_, slot) == 0) return false;
  job(slot).state = State::kFree;
  return true;
}

void ExpertReader::settle() {
  for (const Job& one : jobs_) wait_for(one);
}

void ExpertReader::finish(std::span<const int64_t> slots) {
  for (const int64_t slot : slots) {
    wait_for(job(slot));
    if (!job(slot).fault.empty()) throw Error(job(slot).fault);
  }
  advance();
}

void ExpertReader::wait_for(const Job& one) {
  while (one.state != State::kFree && one.state != State::kDone) {
    advance();
    while (take_arrivals(false)) advance();
    if (arrived_.empty()) take_arrivals(true);
    advance();
    check_arrivals();
  }
}

// Notes one read that has ended. False when none has.
bool ExpertReader::take_arrivals(bool wait) {
  const std::optional<ReadQueue::Done> read = queue_.next(wait);
  if (!read.has_value()) return false;
  Job& arrived = job(read->tag);
  if (arrived.urgency == Urgency::kWanted) --wanted_in_flight_;
  arrived.state = State::kArrived;
  arrived.fault = read->fault;
  arrived_.push_back(read->tag);
  return true;
}

void ExpertReader::check_arrivals() {
  tbb::parallel_for(size_t{0}, arrived_.size(), [this](size_t i) {
    Job& arrived = job(arrived_[i]);
    arrived.fault = fault_of(arrived);
  });
  for (const int64_t slot : arrived_) {
    job(slot).state = State::kDone;
    if (job(slot).staging >= 0) unused_staging_.push_back(job(slot).staging);
  }
  arrived_.clear();
}

// What is wrong with an expert that has arrived, empty when nothing is; then it lies in its slot as
// the kernels read it.
std::string ExpertReader::fault_of(const Job& arrived) const {
  if (!arrived.fault.empty()) return arrived.fault;
  const PackExpert& expert = arrived.expert();
  const std::span<const std::byte> stored(
      arrived.staging < 0 ? arrived.dst : staging_.at(arrived.staging),
      static_cast<size_t>(expert.extent.length_bytes));
  if (check_hashes_) {
    try {
      pack_.expect_hash(expert.extent,
                        "layer " + std::to_string(arrived.bank->layer) + " expert " +
                            std::to_string(expert.source_id),
                        stored);
    } catch (const Error& error) {
      return error.what();
    }
  }
  if (arrived.staging >= 0) {
    const ExpertBands place = resident_bands(pack_.config(), *arrived.bank);
    expand_scales(place, expert.least_exponent, stored,
                  {arrived.dst, static_cast<size_t>(place.extent_bytes())});
  }
  return "";
}

}  // namespace k3
