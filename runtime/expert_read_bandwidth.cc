#include "runtime/expert_read_bandwidth.h"

#include <algorithm>
#include <vector>

#include "runtime/expert_slots.h"
#include "runtime/sampler.h"
#include "schema/error.h"
#include "schema/stopwatch.h"

namespace k3 {

double measure_expert_read_bandwidth(const PackReader& pack, ReadPath reads, int depth, int round) {
  constexpr double kSeconds = 0.5;
  std::vector<Extent> extents;
  int64_t largest_bytes = 0;
  for (const PackBank& bank : pack.index().content.banks) {
    for (const PackExpert& expert : bank.experts) {
      extents.push_back(expert.extent);
      largest_bytes = std::max(largest_bytes, expert.extent.length_bytes);
    }
  }
  K3_CHECK(!extents.empty());
  const ExpertSlots memory(depth, largest_bytes);  // outlives the queue, which waits for its reads
  ReadQueue queue(pack.file(), reads, depth);
  uint64_t started = 0;
  const auto start = [&](int64_t slot) {
    const double drawn = uniform_at(static_cast<uint64_t>(round) + 1, started++);
    const Extent& extent =
        extents[static_cast<size_t>(drawn * static_cast<double>(extents.size()))];
    queue.start(slot, extent.offset_bytes, extent.length_bytes, memory.at(slot));
    return extent.length_bytes;
  };
  const Stopwatch watch;
  std::vector<int64_t> bytes_of_slot;
  for (int64_t slot = 0; slot < depth; ++slot) bytes_of_slot.push_back(start(slot));
  int64_t bytes = 0;
  for (;;) {
    const std::optional<ReadQueue::Done> read = queue.next(true);
    const double seconds = watch.seconds();
    K3_CHECK(read.has_value());  // some are always in flight
    if (!read->fault.empty()) throw Error(read->fault);
    bytes += bytes_of_slot[static_cast<size_t>(read->tag)];
    if (seconds > kSeconds) return static_cast<double>(bytes) / seconds;
    bytes_of_slot[static_cast<size_t>(read->tag)] = start(read->tag);
  }
}

}  // namespace k3
