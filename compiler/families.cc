// Families are told apart by their features, never by model_type: Kimi K3's text_config calls
// itself kimi_linear, as does the older model of that name, and forks keep or change the string at
// will.
#include "compiler/families.h"

#include <array>
#include <string>

#include "compiler/kimi_k3.h"
#include "compiler/kimi_linear.h"
#include "schema/error.h"

namespace k3 {
namespace {

constexpr std::array kFamilies = {
    ModelFamily{"kimi-k3",
                "attn_res_block_size or routed_expert_hidden_size in config.json, or a tensor "
                "output_attn_res_proj.weight",
                looks_like_kimi_k3, import_kimi_k3},
    // Behind K3, which has linear attention too.
    ModelFamily{"kimi-linear",
                "linear_attn_config in config.json, or a tensor self_attn.g_b_proj.weight",
                looks_like_kimi_linear, import_kimi_linear},
};

}  // namespace

std::span<const ModelFamily> model_families() {
  return kFamilies;
}

Model import_model(const Checkpoint& checkpoint) {
  std::string looked_for;
  for (const ModelFamily& family : kFamilies) {
    if (family.recognises(checkpoint)) return family.import(checkpoint);
    looked_for.append(looked_for.empty() ? "" : "; ").append(family.name);
    looked_for.append(": ").append(family.features);
  }
  throw Error(checkpoint.folder(), ": no known model family; looked for ", looked_for);
}

}  // namespace k3
