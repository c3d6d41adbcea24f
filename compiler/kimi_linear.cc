// Dimensions of one carry nothing, and conversions of this older release differ in them: A_log is
// [1, 1, heads, 1] there and [heads] elsewhere, a convolution [channels, 1, taps] or without the
// one. So they may be there or not.
#include "compiler/kimi_linear.h"

#include "compiler/import_tensors.h"
#include "compiler/kimi_linear_config.h"
#include "compiler/kimi_linear_tensors.h"

namespace k3 {

bool looks_like_kimi_linear(const Checkpoint& checkpoint) {
  if (checkpoint.config().root().has("linear_attn_config")) return true;
  return any_name(checkpoint, [](std::string_view name) {
    return name.ends_with("self_attn.g_b_proj.weight");
  });
}

Model import_kimi_linear(const Checkpoint& checkpoint) {
  const TensorRules rules{.family = "kimi-linear",
                          .prefix = "",
                          .trunk_rows = kimi_linear_trunk_rows(),
                          .expert_format = Format::kBf16,
                          .ones_are_free = true,
                          .left_out = {}};
  return import_tensors(checkpoint, rules, read_kimi_linear_config(checkpoint.config()));
}

}  // namespace k3
