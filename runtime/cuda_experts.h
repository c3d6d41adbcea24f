// Where the routed experts of a model are on a GPU.
//
// When the memory given to them holds all, they are read into it once, and a table on the device
// says where each is: the GPU finds the experts it chose by itself. Otherwise the host's expert
// cache stays in charge. It brings experts as a layer asks for them, and they pass through two
// page-locked buffers into slots of the GPU's memory, where the one used longest ago makes room; an
// expert that is still in its slot is not copied again.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/routed_experts.h"
#include "runtime/cuda_memory.h"
#include "schema/pack_reader.h"

namespace k3 {

// All experts of a model.
class AllCudaExperts {
 public:
  // What they take on the device; those of the cold section count only with `with_cold`.
  static int64_t needed_bytes(const PackReader& pack, const ModelConfig& config, bool with_cold);
  // Reads them. Throws Error.
  AllCudaExperts(const PackReader& pack, const ModelConfig& config, bool with_cold,
                 bool check_hashes, cudaStream_t stream);

  // Of the bank's experts, by their position in it; on the device.
  const ExpertWeights* table(const PackBank& bank) const;

 private:
  DeviceBytes extents_;
  DeviceBytes tables_;
  std::unordered_map<int64_t, const ExpertWeights*> table_of_layer_;
};

struct CudaExpertStatistics {
  int64_t hits = 0;    // visits of experts that were in a slot
  int64_t copies = 0;  // of experts from the host
};

// The experts that were used last.
class CudaExpertSlots {
 public:
  // `slots` experts of at most `extent_bytes` each.
  CudaExpertSlots(int64_t slots, int64_t extent_bytes);

  int64_t slots() const { return static_cast<int64_t>(slots_.size()); }
  int64_t slot_bytes() const { return slot_bytes_; }  // the most that an expert may have
  const CudaExpertStatistics& statistics() const { return statistics_; }

  // Puts the experts, host weights or null, into slots, by work on `stream`, and their places into
  // `table`, one entry for each of `experts` in order; -1 in `numbers` for null, else the entry's
  // own number. An expert without a name is copied each time. At most slots() different experts.
  // `experts` may be let go at once.
  void bring(std::span<const ExpertWeights* const> experts, int64_t extent_bytes,
             cudaStream_t stream, std::vector<ExpertWeights>& table, std::vector<int32_t>& numbers);

 private:
  struct Slot {
    int64_t name = -1;
    std::list<size_t>::iterator order;  // in order_
  };
  int64_t slot_bytes_;
  DeviceBytes memory_;
  std::vector<Slot> slots_;
  std::list<size_t> order_;  // of slots, the one used longest ago first
  std::unordered_map<int64_t, size_t> slot_of_name_;
  PinnedPassage passage_;
  CudaExpertStatistics statistics_;
};

}  // namespace k3
