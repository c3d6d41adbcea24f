#include "schema/zstd.h"

#include <zstd.h>

#include "schema/error.h"

namespace k3 {
std::vector<std::byte> compress_zstd(std::span<const std::byte> raw, int level) {
  std::vector<std::byte> compressed(ZSTD_compressBound(raw.size()));
  const size_t written =
      ZSTD_compress(compressed.data(), compressed.size(), raw.data(), raw.size(), level);
  K3_CHECK(!ZSTD_isError(written));
  compressed.resize(written);
  return compressed;
}

std::vector<std::byte> decompress_zstd(std::span<const std::byte> compressed, int64_t raw_bytes,
                                       const std::string& subject) {
  const unsigned long long stated = ZSTD_getFrameContentSize(compressed.data(), compressed.size());
  if (stated == ZSTD_CONTENTSIZE_ERROR) throw Error(subject, ": is not a zstd frame");
  if (stated == ZSTD_CONTENTSIZE_UNKNOWN) throw Error(subject, ": its frame states no size");
  if (raw_bytes < 0 || raw_bytes > kLargestRawBytes ||
      stated != static_cast<unsigned long long>(raw_bytes)) {
    throw Error(subject, ": its frame states ", stated, " bytes, the index says ", raw_bytes);
  }
  const size_t frame = ZSTD_findFrameCompressedSize(compressed.data(), compressed.size());
  if (ZSTD_isError(frame) || frame != compressed.size()) {
    throw Error(subject, ": its ", compressed.size(), " bytes are not one whole zstd frame");
  }
  std::vector<std::byte> raw(static_cast<size_t>(raw_bytes));
  const size_t got = ZSTD_decompress(raw.data(), raw.size(), compressed.data(), compressed.size());
  if (ZSTD_isError(got)) {
    throw Error(subject, ": cannot be decompressed: ", ZSTD_getErrorName(got));
  }
  if (got != raw.size()) {
    throw Error(subject, ": decompresses to ", got, " bytes, expected ", raw_bytes);
  }
  return raw;
}

}  // namespace k3
