// The sums and steps of a calibration as the bytes of their extents (schema/README.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace k3 {

// One zstd frame of eight planes: byte b of every sum, b from 0, each sum zigzagged so that small
// negative ones have zeros above, too. The same bytes on every host; thread-safe.
std::vector<std::byte> compress_sums(std::span<const int64_t> sums);
// The `dst.size()` sums of such a frame. `subject` starts the message of the Error thrown
// otherwise.
void decompress_sums(std::span<const std::byte> stored, const std::string& subject,
                     std::span<int64_t> dst);

// One zstd frame of little-endian int16.
std::vector<std::byte> compress_steps(std::span<const int16_t> steps);
std::vector<int16_t> decompress_steps(std::span<const std::byte> stored, int64_t width,
                                      const std::string& subject);

}  // namespace k3
