// PackReader::verify: the whole file, byte by byte.
//
// Opening a pack proves that the index is consistent; this proves that the rest is what the index
// says. The hash of an extent comes first and settles almost everything. Behind it stand the checks
// that a hash cannot make, because a wrong writer hashes its own mistake: scale bytes that no
// kernel can shift by, a code or byte of trits that the format does not have, padding that is not
// zero.
//
// Trunk tensors stream through one buffer of whole rows; experts, the largest single things that a
// runtime reads too, are read whole. So peak memory is one expert, or one matrix's plane of scales.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "schema/aligned_bytes.h"
#include "schema/compact_scales.h"
#include "schema/error.h"
#include "schema/hash.h"
#include "schema/little_endian.h"
#include "schema/mxfp4_scales.h"
#include "schema/pack_extents.h"
#include "schema/pack_reader.h"
#include "schema/zstd.h"

namespace k3 {
namespace {

constexpr int64_t kChunkBytes = int64_t{4} << 20;
constexpr const char* kGapFault = "the bytes between its planes are not zero";

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// The first fault in one row of int8 codes, or an empty string.
std::string check_int8_row(const Blocks160& place, std::span<const std::byte> codes) {
  if (!all_zero(codes.subspan(static_cast<size_t>(place.cols)))) {
    return "has padding codes that are not zero";
  }
  if (const void* found = std::memchr(codes.data(), 0x80, codes.size())) {
    const auto col = static_cast<const std::byte*>(found) - codes.data();
    return "column " + std::to_string(col) + " has code -128, which int8 does not have";
  }
  return {};
}

// The same for one row of one plane of trits.
std::string check_trit_row(const Blocks160& place, std::span<const std::byte> codes) {
  for (size_t at = 0; at < codes.size(); ++at) {
    const auto byte = std::to_integer<uint8_t>(codes[at]);
    if (!holds_five_trits(byte)) {
      return "byte " + std::to_string(at) + " is " + std::to_string(byte) +
             ", which no five trits make";
    }
  }
  for (int64_t input = place.cols; input < place.blocks_per_row() * kBlockInputs; ++input) {
    const auto byte = std::to_integer<uint8_t>(codes[static_cast<size_t>(trit_byte(input))]);
    if (decode_trit(byte, trit_place(input)) != 0) return "has padding trits that are not zero";
  }
  return {};
}

// The same for whole rows of one plane, whatever the format.
std::string check_code_rows(const Blocks160& place, int64_t plane, int64_t first_row,
                            std::span<const std::byte> codes) {
  const auto stride = static_cast<size_t>(place.row_stride_bytes());
  for (size_t row = 0; row * stride < codes.size(); ++row) {
    const auto line = codes.subspan(row * stride, stride);
    const std::string fault =
        place.format == Format::kInt8 ? check_int8_row(place, line) : check_trit_row(place, line);
    if (fault.empty()) continue;
    const std::string which = place.planes() > 1 ? "plane " + std::to_string(plane) + " " : "";
    return which + "row " + std::to_string(static_cast<size_t>(first_row) + row) + " " + fault;
  }
  return {};
}

// The same for what follows the planes of codes: multipliers, alignment, row scales.
std::string check_scales(const Blocks160& place, std::span<const std::byte> tail) {
  const int64_t tail_offset = place.multipliers_offset();
  const auto range = [&](int64_t begin, int64_t end) {
    return tail.subspan(static_cast<size_t>(begin - tail_offset), static_cast<size_t>(end - begin));
  };
  const int64_t multipliers_end = tail_offset + place.rows * place.blocks_per_row();
  if (!all_zero(range(multipliers_end, place.row_scales_offset()))) return kGapFault;
  const auto scales = range(place.row_scales_offset(), place.extent_bytes());
  for (int64_t row = 0; row < place.rows; ++row) {
    const auto scale =
        std::bit_cast<float>(load_little_endian<uint32_t>(&scales[4 * static_cast<size_t>(row)]));
    if (!std::isfinite(scale) || std::signbit(scale)) {
      return "row " + std::to_string(row) + " has scale " + std::to_string(scale);
    }
  }
  return {};
}

std::string check_expert(const ExpertBands& place, const PackExpert& expert,
                         std::span<const std::byte> bytes) {
  constexpr std::array<const char*, 3> kNames = {"w1", "w3", "w2"};
  if (place.format != Format::kMxfp4) return {};
  const auto* start = reinterpret_cast<const uint8_t*>(bytes.data());
  for (size_t matrix = 0; matrix < kNames.size(); ++matrix) {
    ScaleRange range;
    for (int64_t band = 0; band < place.bands(); ++band) {
      const auto part = place.part(band, static_cast<ExpertMatrix>(matrix));
      const ScaleFault fault = scan_scales(start + part.codes_offset, start + part.scales_offset,
                                           part.rows, place.scales_per_row(part.cols), range);
      if (fault.found) {
        return std::string(kNames[matrix]) + " band " + std::to_string(band) + " row " +
               std::to_string(fault.row) + " group " + std::to_string(fault.group) +
               " has scale byte " + std::to_string(fault.scale);
      }
    }
    if (range.least != expert.least_exponent[matrix]) {
      return std::string(kNames[matrix]) + " has least scale byte " + std::to_string(range.least) +
             ", the index says " + std::to_string(expert.least_exponent[matrix]);
    }
    if (range.span() > kLargestScaleSpan) {
      return std::string(kNames[matrix]) + " spans " + std::to_string(range.span()) +
             " exponents, at most 31 fit the exact sums";
    }
  }
  return {};
}

// One walk over a file; faults collect in `faults`.
class Verifier {
 public:
  Verifier(const PackReader& pack, const File& file,
           const std::function<void(int64_t)>& on_progress, PackReader::Scope scope)
      : pack_(pack), file_(file), on_progress_(on_progress), scope_(scope) {}

  std::vector<std::string> run() {
    check_gap(kFrameBytes, kExtentAlignment);
    for (const PackExtent& item : list_extents(pack_.frame(), pack_.index())) {
      check_gap(end_bytes_, item.extent.offset_bytes);
      const bool is_weight = item.kind == ExtentKind::kTensor || item.kind == ExtentKind::kExpert;
      if (!is_weight || scope_ == PackReader::Scope::kEverything) check_extent(item);
      end_bytes_ = item.extent.end_bytes();
    }
    return std::move(faults_);
  }

 private:
  void check_gap(int64_t begin, int64_t end) {
    if (!all_zero(read(begin, end - begin))) {
      faults_.push_back(pack_.path() + ": bytes " + std::to_string(begin) + " to " +
                        std::to_string(end) + " lie between extents and are not zero");
    }
  }

  void check_extent(const PackExtent& item) {
    const PackContent& content = pack_.index().content;
    const std::vector<PackReport>& reports = pack_.index().provenance.reports;
    hash_ = Xxh3Stream();
    std::string fault;
    if (item.kind == ExtentKind::kTensor && lies_in_blocks160(content.tensors[item.item].format)) {
      fault = check_blocks160(content.tensors[item.item]);
    } else if (item.kind == ExtentKind::kExpert) {
      const PackBank& bank = content.banks[item.item];
      const PackExpert& expert = bank.experts[item.expert];
      std::span<const std::byte> bytes = read_hashed(item.extent);
      const ExpertBands place = resident_bands(content.config, bank);
      if (bank.layout == Layout::kExpertBandsCompact) {
        const auto expanded = expanded_.room_for(place.extent_bytes());
        expand_scales(place, expert.least_exponent, bytes, expanded);
        bytes = expanded;
      }
      fault = check_expert(place, expert, bytes);
    } else if (item.kind == ExtentKind::kSideFile) {
      fault = check_compressed(item.extent, content.side_files[item.item].raw_bytes);
    } else if (item.kind == ExtentKind::kReport && !is_stored_raw(reports[item.item])) {
      fault = check_compressed(item.extent, reports[item.item].raw_bytes);
    } else {
      stream(item.extent.offset_bytes, item.extent.end_bytes());
    }
    // Bytes that are not the ones written are one fault, whatever else is wrong with them.
    if (hash_.digest() != item.extent.xxh3) {
      fault = "is damaged: its hash does not match its bytes";
    }
    if (!fault.empty()) {
      faults_.push_back(pack_.path() + ": " + describe_extent(pack_.index(), item) + ": " + fault);
    }
  }

  // The first fault of any part; what follows a fault is read all the same, for the hash.
  std::string check_blocks160(const PackTensor& tensor) {
    const Blocks160 place{tensor.format, tensor.shape[0], tensor.shape[1]};
    const auto read_part = [&](int64_t begin, int64_t end) {
      return read_hashed({tensor.extent.offset_bytes + begin, end - begin, 0});
    };
    const int64_t stride = place.row_stride_bytes();
    const int64_t rows_at_once = std::max<int64_t>(1, kChunkBytes / stride);
    std::string fault;
    for (int64_t plane = 0; plane < place.planes(); ++plane) {
      const int64_t start = place.plane_offset(plane);
      for (int64_t row = 0; row < place.rows; row += rows_at_once) {
        const int64_t end_row = std::min(row + rows_at_once, place.rows);
        const auto codes = read_part(start + row * stride, start + end_row * stride);
        if (fault.empty()) fault = check_code_rows(place, plane, row, codes);
      }
      const auto gap = read_part(start + place.plane_bytes(), place.plane_offset(plane + 1));
      if (fault.empty() && !all_zero(gap)) fault = kGapFault;
    }
    const auto tail = read_part(place.multipliers_offset(), place.extent_bytes());
    return fault.empty() ? check_scales(place, tail) : fault;
  }

  std::string check_compressed(const Extent& extent, int64_t raw_bytes) {
    const auto stored = read_hashed(extent);
    try {
      decompress_zstd(stored, raw_bytes, "content");
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }

  std::span<const std::byte> read(int64_t offset_bytes, int64_t length_bytes) {
    const auto bytes = buffer_.room_for(length_bytes);
    file_.read_at(offset_bytes, bytes);
    return bytes;
  }
  std::span<const std::byte> read_hashed(const Extent& extent) {
    const auto bytes = buffer_.room_for(extent.length_bytes);
    k3::read_hashed(file_, extent.offset_bytes, bytes, hash_);
    if (on_progress_) on_progress_(extent.end_bytes());
    return bytes;
  }
  void stream(int64_t begin, int64_t end) {
    for (; begin < end; begin += kChunkBytes) {
      read_hashed({begin, std::min(kChunkBytes, end - begin), 0});
    }
  }

  const PackReader& pack_;
  const File& file_;
  const std::function<void(int64_t)>& on_progress_;
  PackReader::Scope scope_;
  std::vector<std::string> faults_;
  AlignedBytes buffer_;
  AlignedBytes expanded_;  // a compact expert
  Xxh3Stream hash_;
  int64_t end_bytes_ = kExtentAlignment;
};

}  // namespace

std::vector<std::string> PackReader::verify(const std::function<void(int64_t)>& on_progress,
                                            Scope scope) const {
  return Verifier(*this, file_, on_progress, scope).run();
}

}  // namespace k3
