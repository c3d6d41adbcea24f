#include "schema/calibration_sums.h"

#include "schema/little_endian.h"
#include "schema/zstd.h"

namespace k3 {
namespace {

// The lower bytes of sums are noise: the level decides the time alone.
constexpr int kSumsZstdLevel = 1;

uint64_t zigzag(int64_t value) {
  return static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63);
}
int64_t unzigzag(uint64_t code) {
  return static_cast<int64_t>(code >> 1 ^ (~(code & 1) + 1));
}

}  // namespace

std::vector<std::byte> compress_sums(std::span<const int64_t> sums) {
  std::vector<std::byte> planes(sums.size() * 8);
  for (size_t i = 0; i < sums.size(); ++i) {
    const uint64_t code = zigzag(sums[i]);
    for (size_t b = 0; b < 8; ++b) {
      planes[b * sums.size() + i] = static_cast<std::byte>(code >> (8 * b));
    }
  }
  return compress_zstd(planes, kSumsZstdLevel);
}

void decompress_sums(std::span<const std::byte> stored, const std::string& subject,
                     std::span<int64_t> dst) {
  const auto raw_bytes = static_cast<int64_t>(dst.size()) * 8;
  const std::vector<std::byte> planes = decompress_zstd(stored, raw_bytes, subject);
  for (size_t i = 0; i < dst.size(); ++i) {
    uint64_t code = 0;
    for (size_t b = 0; b < 8; ++b) {
      code |= static_cast<uint64_t>(planes[b * dst.size() + i]) << (8 * b);
    }
    dst[i] = unzigzag(code);
  }
}

std::vector<std::byte> compress_steps(std::span<const int16_t> steps) {
  std::vector<std::byte> raw(steps.size() * 2);
  for (size_t i = 0; i < steps.size(); ++i) {
    store_little_endian(static_cast<uint16_t>(steps[i]), &raw[2 * i]);
  }
  return compress_zstd(raw, kSumsZstdLevel);
}

std::vector<int16_t> decompress_steps(std::span<const std::byte> stored, int64_t width,
                                      const std::string& subject) {
  const std::vector<std::byte> raw = decompress_zstd(stored, width * 2, subject);
  std::vector<int16_t> steps(static_cast<size_t>(width));
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i] = static_cast<int16_t>(load_little_endian<uint16_t>(&raw[2 * i]));
  }
  return steps;
}

}  // namespace k3
