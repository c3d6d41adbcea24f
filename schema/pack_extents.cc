#include "schema/pack_extents.h"

#include <algorithm>

namespace k3 {

std::vector<PackExtent> list_extents(const PackFrame& frame, const PackIndex& index) {
  size_t count = index.content.tensors.size() + index.content.side_files.size() +
                 index.provenance.reports.size() + index.retired.size() + 1;
  for (const PackBank& bank : index.content.banks) count += bank.experts.size();

  std::vector<PackExtent> extents;
  extents.reserve(count);
  uint32_t item = 0;
  for (const PackTensor& tensor : index.content.tensors) {
    extents.push_back({tensor.extent, ExtentKind::kTensor, item++, 0});
  }
  item = 0;
  for (const PackBank& bank : index.content.banks) {
    uint32_t expert = 0;
    for (const PackExpert& kept : bank.experts) {
      extents.push_back({kept.extent, ExtentKind::kExpert, item, expert++});
    }
    ++item;
  }
  item = 0;
  for (const PackSideFile& file : index.content.side_files) {
    extents.push_back({file.extent, ExtentKind::kSideFile, item++, 0});
  }
  item = 0;
  for (const PackReport& report : index.provenance.reports) {
    extents.push_back({report.extent, ExtentKind::kReport, item++, 0});
  }
  item = 0;
  for (const Extent& retired : index.retired) {
    extents.push_back({retired, ExtentKind::kRetired, item++, 0});
  }
  extents.push_back({frame.index, ExtentKind::kIndex, 0, 0});

  // Our own writer lists them in file order already, and K3 has 85,000.
  const auto lies_before = [](const PackExtent& a, const PackExtent& b) {
    return a.extent.offset_bytes < b.extent.offset_bytes;
  };
  if (!std::is_sorted(extents.begin(), extents.end(), lies_before)) {
    std::stable_sort(extents.begin(), extents.end(), lies_before);
  }
  return extents;
}

std::string describe_extent(const PackIndex& index, const PackExtent& extent) {
  switch (extent.kind) {
    case ExtentKind::kTensor:
      return "tensor " + index.content.tensors[extent.item].name;
    case ExtentKind::kExpert: {
      const PackBank& bank = index.content.banks[extent.item];
      return "expert " + std::to_string(bank.experts[extent.expert].source_id) + " of layer " +
             std::to_string(bank.layer);
    }
    case ExtentKind::kSideFile:
      return "side file " + index.content.side_files[extent.item].name;
    case ExtentKind::kReport:
      return "report " + index.provenance.reports[extent.item].name;
    case ExtentKind::kRetired:
      return "retired index " + std::to_string(extent.item);
    case ExtentKind::kIndex:
      return "index";
  }
  return "extent";
}

}  // namespace k3
