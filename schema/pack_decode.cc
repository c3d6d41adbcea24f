#include "schema/pack_decode.h"

#include <cstdint>
#include <optional>
#include <string_view>

#include "schema/error.h"
#include "schema/pack_generated.h"
#include "schema/printable.h"
#include "schema/zstd.h"

namespace k3 {
namespace {

constexpr uint64_t kLargestOffset = uint64_t{1} << 62;  // sums of two such stay inside int64

// The generated verifier would check the nested buffer too, but under FlatBuffers' default limit of
// one million tables, whatever limit the outer one has. So it is switched off there and done here.
template <class Table>
bool is_sound_flatbuffer(std::span<const std::byte> bytes) {
  flatbuffers::Verifier::Options options;
  options.max_depth = 16;
  // No table is smaller than its 4-byte vtable reference, so this bound never bites a real index,
  // while a hostile one that shares tables cannot make the walk longer than its own size.
  options.max_tables = static_cast<flatbuffers::uoffset_t>(bytes.size() / 4 + 1);
  options.check_nested_flatbuffers = false;
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(),
                                 options);
  return verifier.VerifyBuffer<Table>(nullptr);
}

class IndexDecoder {
 public:
  explicit IndexDecoder(const std::string& path) : path_(path) {}

  // A name, or a value that is shown on one line: no longer than 255 bytes, no control characters.
  // Whoever wrote it chose it, and it will stand in messages and on terminals.
  std::string name(const flatbuffers::String& from) const {
    constexpr size_t kLongestName = 255;
    if (from.size() > kLongestName) {
      throw Error(path_, ": index has a name of ", from.size(), " bytes, at most ", kLongestName,
                  " are allowed");
    }
    return checked_text(from, "");
  }
  // Text of any length that may have line ends and tabs.
  std::string text(const flatbuffers::String& from) const { return checked_text(from, "\t\n\r"); }

  PackContent content(const pack::Content& from) const {
    PackContent to;
    to.config = config(*from.config());
    to.tensors.reserve(from.tensors()->size());
    for (const pack::Tensor* tensor_from : *from.tensors()) {
      to.tensors.push_back(tensor(*tensor_from));
    }
    to.banks.reserve(from.banks()->size());
    for (const pack::Bank* bank_from : *from.banks()) to.banks.push_back(bank(*bank_from));
    for (const pack::SideFile* file : *from.side_files()) {
      const std::string file_name = name(*file->name());
      to.side_files.push_back({file_name, raw_bytes(file->raw_bytes(), "side file ", file_name),
                               extent(*file->extent(), "side file ", file_name)});
    }
    return to;
  }

  PackProvenance provenance(const pack::Provenance& from) const {
    PackProvenance to;
    to.compiler = name(*from.compiler());
    for (const pack::Option* option : *from.options()) {
      to.options.emplace_back(name(*option->name()), name(*option->value()));
    }
    for (const pack::PassRecord* pass : *from.passes()) {
      PassRecord record{name(*pass->name()), {}};
      for (const pack::Number* number : *pass->numbers()) {
        record.numbers.emplace_back(name(*number->name()), number->value());
      }
      to.passes.push_back(std::move(record));
    }
    for (const pack::Report* report : *from.reports()) {
      const std::string report_name = name(*report->name());
      to.reports.push_back({report_name, raw_bytes(report->raw_bytes(), "report ", report_name),
                            extent(*report->extent(), "report ", report_name)});
    }
    return to;
  }

  Extent retired(const pack::Extent& from) const { return extent(from, "retired index", ""); }

  // FlatBuffers' verifier checks that a vector's count is aligned, not that its elements are.
  template <class Vector>
  const Vector& aligned(const Vector& vector, std::string_view what) const {
    if (vector.size() > 0 && reinterpret_cast<uintptr_t>(vector.Data()) % alignof(int64_t) != 0) {
      throw Error(path_, ": index has ", what, " that do not lie on an 8-byte boundary");
    }
    return vector;
  }

 private:
  std::string checked_text(const flatbuffers::String& from, std::string_view allowed) const {
    std::string to(from.data(), from.size());
    for (const char symbol : to) {
      if (is_control(symbol) && allowed.find(symbol) == std::string_view::npos) {
        throw Error(path_, ": index has text with control character ", static_cast<int>(symbol));
      }
    }
    return to;
  }

  template <class... Subject>
  Extent extent(const pack::Extent& from, const Subject&... subject) const {
    if (from.offset_bytes() > kLargestOffset || from.length_bytes() > kLargestOffset) {
      throw Error(path_, ": ", subject..., ": extent is at ", from.offset_bytes(), " + ",
                  from.length_bytes(), ", beyond any file");
    }
    return {static_cast<int64_t>(from.offset_bytes()), static_cast<int64_t>(from.length_bytes()),
            from.xxh3()};
  }

  template <class... Subject>
  int64_t raw_bytes(uint64_t value, const Subject&... subject) const {
    if (value > static_cast<uint64_t>(kLargestRawBytes)) {
      throw Error(path_, ": ", subject..., ": has ", value, " bytes, at most ", kLargestRawBytes,
                  " are read");
    }
    return static_cast<int64_t>(value);
  }

  // An on-disk byte as an enumerator; `last` is the greatest one known.
  template <class Enum, class... Subject>
  Enum enumerator(uint8_t value, Enum last, const char* what, const Subject&... subject) const {
    if (value > static_cast<uint8_t>(last)) {
      throw Error(path_, ": ", subject..., ": ", what, " is ", static_cast<int>(value),
                  ", this program knows 0 to ", static_cast<int>(last));
    }
    return static_cast<Enum>(value);
  }

  ModelConfig config(const pack::Config& from) const {
    const auto optional = [](auto value) { return value ? std::optional(*value) : std::nullopt; };
    ModelConfig to;
    to.hidden_size = from.hidden_size();
    to.vocab_size = from.vocab_size();
    to.layers.reserve(from.layers()->size());
    for (const pack::LayerKinds* kinds : *from.layers()) {
      to.layers.push_back(
          {enumerator(kinds->attention(), AttentionKind::kMla, "attention kind", "config"),
           enumerator(kinds->ffn(), FfnKind::kMoe, "feed-forward kind", "config")});
    }
    to.rms_norm_epsilon = from.rms_norm_epsilon();
    to.low_rank_norm_epsilon = from.low_rank_norm_epsilon();
    to.qk_norm_epsilon = from.qk_norm_epsilon();
    to.kda_heads = from.kda_heads();
    to.kda_head_dim = from.kda_head_dim();
    to.conv_kernel = from.conv_kernel();
    to.decay_lower_bound = optional(from.decay_lower_bound());
    to.kda_gate_rank = optional(from.kda_gate_rank());
    to.mla_heads = from.mla_heads();
    to.q_lora_rank = optional(from.q_lora_rank());
    to.kv_lora_rank = from.kv_lora_rank();
    to.qk_content_dim = from.qk_content_dim();
    to.qk_extra_dim = from.qk_extra_dim();
    to.v_head_dim = from.v_head_dim();
    to.mla_output_gate = from.mla_output_gate();
    to.dense_intermediate_size = from.dense_intermediate_size();
    to.activation = enumerator(from.activation(), Activation::kSitu, "activation", "config");
    to.situ_beta = from.situ_beta();
    to.situ_linear_beta = from.situ_linear_beta();
    to.experts = from.experts();
    to.experts_per_token = from.experts_per_token();
    to.expert_intermediate_size = from.expert_intermediate_size();
    to.shared_experts = from.shared_experts();
    to.latent_size = optional(from.latent_size());
    to.latent_norm = from.latent_norm();
    to.renormalize = from.renormalize();
    to.routed_scaling_factor = from.routed_scaling_factor();
    to.attention_residual_block = optional(from.attention_residual_block());
    to.bos_token_id = from.bos_token_id();
    to.eos_token_id = from.eos_token_id();
    to.pad_token_id = from.pad_token_id();
    if (from.rotation() != nullptr) to.rotation = rotation(*from.rotation());
    return to;
  }

  static RotatedBasis rotation(const pack::Rotation& from) {
    return {.seed = from.seed(),
            .stream_block = from.stream_block(),
            .query_block = from.query_block(),
            .kda_block = from.kda_block(),
            .mla_block = from.mla_block(),
            .dense_block = from.dense_block(),
            .shared_block = from.shared_block(),
            .latent_block = from.latent_block()};
  }

  PackTensor tensor(const pack::Tensor& from) const {
    PackTensor to;
    to.name = name(*from.name());
    to.family = enumerator(from.family(), Family::kProjector, "family", "tensor ", to.name);
    to.format = enumerator(from.format(), Format::kTernary2, "format", "tensor ", to.name);
    to.layout =
        enumerator(from.layout(), Layout::kExpertBandsCompact, "layout", "tensor ", to.name);
    if (from.shape()->size() > static_cast<size_t>(Shape::kMaxRank)) {
      throw Error(path_, ": tensor ", to.name, ": has ", from.shape()->size(),
                  " dimensions, at most ", Shape::kMaxRank, " are known");
    }
    const auto& shape = aligned(*from.shape(), "dimensions");
    to.shape = Shape(std::span(shape.data(), shape.size()));
    to.extent = extent(*from.extent(), "tensor ", to.name);
    return to;
  }

  PackBank bank(const pack::Bank& from) const {
    PackBank to;
    to.layer = from.layer();
    to.format = enumerator(from.format(), Format::kTernary2, "format", "bank of layer ", to.layer);
    to.layout = enumerator(from.layout(), Layout::kExpertBandsCompact, "layout", "bank of layer ",
                           to.layer);
    to.source_experts = from.source_experts();
    to.fixed_point = from.fixed_point();
    to.experts.reserve(from.experts()->size());
    for (const pack::Expert* expert : aligned(*from.experts(), "experts")) {
      if (expert->cold() > 1) {
        throw Error(path_, ": expert ", expert->source_id(), " of layer ", to.layer, ": cold is ",
                    static_cast<int>(expert->cold()), ", expected 0 or 1");
      }
      PackExpert& kept = to.experts.emplace_back();
      kept.extent =
          extent(expert->extent(), "expert ", expert->source_id(), " of layer ", to.layer);
      kept.source_id = expert->source_id();
      kept.least_exponent = {expert->least_exponent_w1(), expert->least_exponent_w3(),
                             expert->least_exponent_w2()};
      kept.cold = expert->cold() != 0;
    }
    return to;
  }

  const std::string& path_;
};

}  // namespace

DecodedIndex decode_index(std::span<const std::byte> bytes, const std::string& path) {
  if (!is_sound_flatbuffer<pack::Index>(bytes)) {
    throw Error(path, ": index is not a sound FlatBuffer");
  }
  const auto& root = *flatbuffers::GetRoot<pack::Index>(bytes.data());

  DecodedIndex decoded;
  decoded.content = std::as_bytes(std::span(root.content()->data(), root.content()->size()));
  const auto content_offset = static_cast<size_t>(decoded.content.data() - bytes.data());
  if (content_offset % 8 != 0 || !is_sound_flatbuffer<pack::Content>(decoded.content)) {
    throw Error(path, ": content of the index is not a sound FlatBuffer on an 8-byte boundary");
  }

  const IndexDecoder decoder(path);
  decoded.index.content =
      decoder.content(*flatbuffers::GetRoot<pack::Content>(decoded.content.data()));
  decoded.index.provenance = decoder.provenance(*root.provenance());
  for (const pack::Receipt* receipt : *root.receipts()) {
    decoded.index.receipts.push_back(
        {decoder.name(*receipt->kind()), receipt->payload_xxh3(), decoder.text(*receipt->text())});
  }
  for (const pack::Extent* retired : decoder.aligned(*root.retired(), "retired extents")) {
    decoded.index.retired.push_back(decoder.retired(*retired));
  }
  return decoded;
}

}  // namespace k3
