// zstd for side files, reports, routing traces and the sums of a calibration: never for weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace k3 {

// The largest size that a compressed item may state for its content. K3's list of sources, half a
// million lines, has 60 MB.
inline constexpr int64_t kLargestRawBytes = int64_t{1} << 30;

// Of text, such as K3's lists of sources and decisions, this level makes 12 % less than the
// library's default and takes a second; the levels above win little and cost minutes.
inline constexpr int kTextZstdLevel = 9;

// One frame that states its content size: the same bytes from the same library version, on one
// thread, whatever the host.
std::vector<std::byte> compress_zstd(std::span<const std::byte> raw, int level = kTextZstdLevel);

// The content of exactly one frame, which must state `raw_bytes`. `subject` ("PATH: side file X")
// starts the message of the Error thrown otherwise. Nothing is allocated before the sizes agree.
std::vector<std::byte> decompress_zstd(std::span<const std::byte> compressed, int64_t raw_bytes,
                                       const std::string& subject);

}  // namespace k3
