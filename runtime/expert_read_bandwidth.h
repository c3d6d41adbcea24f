// What the disk gives to reads of experts: the number that a cache's speed is held against.
#pragma once

#include <cstdint>

#include "runtime/read_queue.h"
#include "schema/pack_reader.h"

namespace k3 {

// Bytes per second, over about half a second, of reads of whole experts from all over the pack, in
// the order of a fixed sequence, `depth` of them always in flight. Nothing is checked or computed
// meanwhile. `round` picks another part of the sequence. Throws Error when a read fails.
double measure_expert_read_bandwidth(const PackReader& pack, ReadPath reads, int depth, int round);

}  // namespace k3
