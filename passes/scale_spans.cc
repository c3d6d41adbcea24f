// The least exponent is that of the groups that are not all zero, and for that codes must be looked
// at; but one group that is not zero and has the plane's least byte proves it, and almost always
// the first such group is one. So a plane costs its own bytes and sixteen more.
#include "passes/scale_spans.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <array>
#include <string>

#include "schema/compact_scales.h"
#include "schema/error.h"
#include "schema/formats/mxfp4.h"
#include "schema/mxfp4_scales.h"

namespace k3 {
namespace {

constexpr int64_t kGroupBytes = kMxfp4GroupInputs / 2;

bool fits(const Model& model, const Source& codes, const Source& scales) {
  if (codes.length_bytes != scales.length_bytes * kGroupBytes || scales.length_bytes == 0) {
    throw Error(model.shards[static_cast<size_t>(scales.shard)]->path(), ": an expert has ",
                codes.length_bytes, " bytes of codes and ", scales.length_bytes,
                " of scales, expected 16 to 1");
  }
  std::vector<std::byte> plane(static_cast<size_t>(scales.length_bytes));
  model.shards[static_cast<size_t>(scales.shard)]->read_at(scales.offset_bytes, plane);
  const auto* bytes = reinterpret_cast<const uint8_t*>(plane.data());
  const auto [least, greatest] = std::minmax_element(bytes, bytes + plane.size());
  if (*greatest - *least > kCompactSpan || *least > kLargestCompactBase) return false;

  const File& shard = *model.shards[static_cast<size_t>(codes.shard)];
  std::array<std::byte, kGroupBytes> group{};
  for (const uint8_t* at = least; at != bytes + plane.size(); ++at) {
    if (*at != *least) continue;
    shard.read_at(codes.offset_bytes + (at - bytes) * kGroupBytes, group);
    ScaleRange range;
    scan_scales(reinterpret_cast<const uint8_t*>(group.data()), at, 1, 1, range);
    if (range.least == *least) return true;
  }
  return false;  // only all-zero groups have it, so it lies below the least exponent
}

}  // namespace

std::vector<int32_t> find_compact_misfits(const Model& model, const Bank& bank,
                                          Progress& progress) {
  K3_CHECK(bank.source_format == Format::kMxfp4);
  int64_t bytes = 0;
  for (const Expert& expert : bank.experts) {
    for (size_t i = 1; i < expert.sources.size(); i += 2) bytes += expert.sources[i].length_bytes;
  }
  progress.start("scales of layer " + std::to_string(bank.layer), bytes);
  std::vector<uint8_t> misfit(bank.experts.size());  // bytes, not bits: experts write in parallel
  tbb::parallel_for(size_t{0}, bank.experts.size(), [&](size_t i) {
    for (size_t matrix = 0; matrix < 3 && misfit[i] == 0; ++matrix) {
      const Source& codes = bank.experts[i].sources[2 * matrix];
      const Source& scales = bank.experts[i].sources[2 * matrix + 1];
      misfit[i] = fits(model, codes, scales) ? 0 : 1;
      progress.advance(scales.length_bytes);
    }
  });
  progress.finish();
  std::vector<int32_t> ids;
  for (size_t i = 0; i < misfit.size(); ++i) {
    if (misfit[i] != 0) ids.push_back(bank.experts[i].source_id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace k3
