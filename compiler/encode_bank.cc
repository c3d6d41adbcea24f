// An expert is read whole, because its scales must be looked at before its first band is written,
// but leaves band by band: a band of K3's has 1.5 MB and stays in the cache between the copy that
// makes it, its hash and the write.
#include "compiler/encode_bank.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>

#include "compiler/encode_expert.h"
#include "compiler/fixed_point.h"
#include "schema/compact_scales.h"
#include "schema/error.h"

namespace k3 {
namespace {

// Where the sources of a matrix stand in Expert::sources, by ExpertMatrix: the checkpoint has w2
// before w3.
constexpr std::array<size_t, 3> kSourceOrder = {0, 2, 1};

std::string expert_subject(const Model& model, const Bank& bank, const Expert& expert) {
  return model.shards[static_cast<size_t>(expert.sources[0].shard)]->path() + ": layer " +
         std::to_string(bank.layer) + ": expert " + std::to_string(expert.source_id);
}

// Which of an expert's sources holds the codes of a matrix; the scales of mxfp4 follow them.
size_t codes_source(Format format, ExpertMatrix matrix) {
  const size_t place = kSourceOrder[static_cast<size_t>(matrix)];
  return format == Format::kMxfp4 ? 2 * place : place;
}

void check_source(const Source& source, int64_t expected_bytes, const std::string& subject) {
  if (source.length_bytes != expected_bytes) {
    throw Error(subject, ": a tensor has ", source.length_bytes, " bytes, expected ",
                expected_bytes);
  }
}

// The bands with every byte of the source in them; compact ones are made from these.
ExpertBands source_bands(const ModelConfig& config, const Bank& bank) {
  return {bank.format, config.expert_width(), config.expert_intermediate_size};
}

// The pass that chose the layout has seen that every scale fits.
void check_compact(const ExpertSources& matrices, const std::array<uint8_t, 3>& least,
                   const std::string& subject) {
  for (size_t matrix = 0; matrix < matrices.size(); ++matrix) {
    for (const std::byte scale : matrices[matrix].scales) {
      const int above = std::to_integer<int>(scale) - least[matrix];
      if (above < 0 || above > kCompactSpan) {
        throw Error(subject, ": its scales have changed since the compile began");
      }
    }
  }
}

// `bytes` are w2's scales, or its weights where there are none.
double w2_row_bound(const ExpertBands& place, std::span<const std::byte> bytes,
                    const std::string& subject) {
  if (place.format == Format::kMxfp4) return row_bound_mxfp4(bytes, place.latent);
  const double bound = row_bound_bf16(bytes, place.latent);
  if (!std::isfinite(bound)) {
    throw Error(subject, ".w2: has a weight that is NaN or infinite, expected finite weights");
  }
  return bound;
}

}  // namespace

int64_t expert_source_bytes(const Expert& expert) {
  int64_t bytes = 0;
  for (const Source& source : expert.sources) bytes += source.length_bytes;
  return bytes;
}

EncodedItem ExpertEncoder::encode(const Bank& bank, const Expert& expert) {
  const ExpertBands place = source_bands(model_.config, bank);
  const std::string subject = expert_subject(model_, bank, expert);

  Xxh3Stream source_hash;
  std::array<std::span<std::byte>, 6> pieces;
  std::span<std::byte> left = source_.room_for(expert_source_bytes(expert));
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Source& source = expert.sources[i];
    pieces[i] = left.first(static_cast<size_t>(source.length_bytes));
    left = left.subspan(pieces[i].size());
    if (source.length_bytes == 0) continue;
    read_hashed(*model_.shards[static_cast<size_t>(source.shard)], source.offset_bytes, pieces[i],
                source_hash);
  }

  ExpertSources matrices;
  for (const ExpertMatrix matrix : {ExpertMatrix::kW1, ExpertMatrix::kW3, ExpertMatrix::kW2}) {
    const ExpertSourceBytes want = expert_source_bytes(place, matrix);
    const size_t codes = codes_source(bank.format, matrix);
    check_source(expert.sources[codes], want.codes, subject);
    ExpertSource& to = matrices[static_cast<size_t>(matrix)];
    to.codes = pieces[codes];
    if (bank.format != Format::kMxfp4) continue;
    check_source(expert.sources[codes + 1], want.scales, subject);
    to.scales = pieces[codes + 1];
  }

  EncodedItem encoded;
  encoded.source_xxh3 = source_hash.digest();
  encoded.least_exponent = least_exponents(place, matrices, subject);
  const bool compact = bank.layout == Layout::kExpertBandsCompact;
  if (compact) check_compact(matrices, encoded.least_exponent, subject);
  ExtentStream extent(writer_, expert.extent);
  for (int64_t band = 0; band < place.bands(); ++band) {
    std::span<std::byte> bytes = band_.room_for(place.band_bytes(band));
    permute_band(place, band, matrices, bytes);
    if (compact) bytes = compact_band(place, band, encoded.least_exponent, bytes);
    extent.write(bytes);
  }
  encoded.extent_xxh3 = extent.finish();
  const ExpertSource& w2 = matrices[static_cast<size_t>(ExpertMatrix::kW2)];
  encoded.row_bound =
      w2_row_bound(place, bank.format == Format::kMxfp4 ? w2.scales : w2.codes, subject);
  return encoded;
}

double ExpertEncoder::bound_left_out(const Bank& bank, const Expert& expert) {
  const ExpertBands place = source_bands(model_.config, bank);
  const std::string subject = expert_subject(model_, bank, expert);
  const ExpertSourceBytes want = expert_source_bytes(place, ExpertMatrix::kW2);
  const size_t codes = codes_source(bank.format, ExpertMatrix::kW2);
  const bool packed = bank.format == Format::kMxfp4;
  const Source& source = expert.sources[packed ? codes + 1 : codes];
  check_source(source, packed ? want.scales : want.codes, subject);
  const auto bytes = source_.room_for(source.length_bytes);
  model_.shards[static_cast<size_t>(source.shard)]->read_at(source.offset_bytes, bytes);
  if (packed && std::find(bytes.begin(), bytes.end(), std::byte{kMxfp4NanScale}) != bytes.end()) {
    throw Error(subject, ".w2: has a scale of 255 (NaN), expected at most 254");
  }
  return w2_row_bound(place, bytes, subject);
}

int64_t ExpertEncoder::buffer_bytes(const Model& model) {
  int64_t most = 0;
  for (const Bank& bank : model.banks) {
    const ExpertBands place = source_bands(model.config, bank);
    if (bank.experts.empty()) continue;  // all of a bank have one size
    most = std::max(most, expert_source_bytes(bank.experts.front()) + place.band_bytes(0));
  }
  return most;
}

}  // namespace k3
