// Every tensor of the model by name, as the forward pass reads them. Reading this header is reading
// the architecture.
//
// Matrices stay in the pack's format and are views into extents held here, where the backend works;
// vectors are widened to float once. Shapes are [outputs, inputs]; d is the hidden size, l the
// width the routed experts work in, H x D the KDA heads, h the MLA heads.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "runtime/backend_memory.h"
#include "runtime/missing_rule.h"
#include "runtime/small_arrays.h"
#include "schema/aligned_bytes.h"
#include "schema/matrix_view.h"
#include "schema/model_config.h"
#include "schema/pack_reader.h"
#include "schema/prune_plan.h"

namespace k3 {

struct KdaWeights {
  MatrixView q_proj, k_proj, v_proj;                 // [H D, d]
  const float *q_conv = nullptr, *k_conv = nullptr;  // [H D, taps]
  const float* v_conv = nullptr;                     // [H D, taps]
  MatrixView f_a_proj, f_b_proj;                     // [D, d], [H D, D]: decay logits
  MatrixView b_proj;                                 // [H, d]: beta logits
  const float* a_log = nullptr;                      // [H]
  const float* dt_bias = nullptr;                    // [H D]
  MatrixView g_proj;                                 // [H D, d]: output gate, when it is one matrix
  MatrixView g_a_proj, g_b_proj;  // [rank, d], [H D, rank]: output gate, when it has a rank
  const float* o_norm = nullptr;  // [D]
  MatrixView o_proj;              // [d, H D]
};

struct MlaWeights {
  MatrixView q_proj;                 // [h (content + extra), d], when there is no query rank
  MatrixView q_a_proj, q_b_proj;     // [rank, d], [h (content + extra), rank]
  const float* q_a_norm = nullptr;   // [rank]
  MatrixView kv_a_proj;              // [latent + extra, d]
  const float* kv_a_norm = nullptr;  // [latent]
  MatrixView kv_b_proj;              // [h (content + v), latent]
  MatrixView g_proj;                 // [h v, d], when there is an output gate
  MatrixView o_proj;                 // [d, h v]
};

// A gated MLP: down( act( gate x, up x ) ).
struct MlpWeights {
  MatrixView gate_proj, up_proj;  // [width, d]
  MatrixView down_proj;           // [d, width]
};

// The experts here are those that the router may choose: of the bank, in its order, and behind
// them, under MissingRule::kDrop, those that the pack does not have. Router rows and biases were
// brought into the same order.
struct MoeWeights {
  MatrixView gate;                      // [experts, d]: the router
  const float* score_bias = nullptr;    // [experts]: for choosing only; -infinity: never
  std::vector<int32_t> source_ids;      // [experts]: the checkpoint's numbers
  const int32_t* router_ids = nullptr;  // the same where the backend works
  std::vector<uint8_t> masked;          // [experts]: 1 where score_bias is -infinity
  std::vector<uint8_t> drops;           // [experts], or empty: 1 where a choice adds nothing
  MatrixView down_proj, up_proj;        // [l, d], [d, l], when the experts work in a latent
  const float* norm = nullptr;          // [l], when latent_norm
  MlpWeights shared;                    // width shared_experts x expert_intermediate_size, if any
  const PackBank* bank = nullptr;       // the routed experts, fetched by ExpertCache

  // The source ids that may be chosen.
  std::set<int32_t> choosable() const;
};

struct LayerWeights {
  const float* input_norm = nullptr;           // [d]
  const float* post_attention_norm = nullptr;  // [d]
  const float *attention_res_norm = nullptr,
              *attention_res_proj = nullptr;                     // [d], with attention residuals
  const float *mlp_res_norm = nullptr, *mlp_res_proj = nullptr;  // [d], with attention residuals
  KdaWeights kda;                                                // when layers[i].attention is kKda
  MlaWeights mla;                                                // when kMla
  MlpWeights dense;                                              // when layers[i].ffn is kDense
  MoeWeights moe;                                                // when kMoe
};

// Which weights are in memory.
enum class Residence : uint8_t {
  kAll,      // every layer and the model's own
  kOnePart,  // the part that was last held: for programs that go through the model layer by layer
};

class Weights {
 public:
  // Reads every tensor of the layers of `config` and of the model itself, but no routed expert.
  // `config` is the pack's, or the same with fewer layers, and must outlive this. With
  // `check_hashes` each extent's hash is checked on the way. Under kOnePart nothing is read yet.
  // What `plan` drops, if it is not null, is missing; it must fit the pack (check_plan_fits).
  // Weights lie where `backend` works, which must outlive this, or on the host when it is null.
  // Throws Error when missing experts are to be fetched and the pack does not have them.
  Weights(const PackReader& pack, const ModelConfig& config, bool check_hashes,
          Residence residence = Residence::kAll, const PrunePlan* plan = nullptr,
          MissingRule missing = MissingRule::kNextBest, Backend* backend = nullptr);

  // kOnePart: frees the part held before, whose views are then null, and reads another.
  void hold_embedding();
  void hold_layer(int64_t layer);
  void hold_output();  // output mix, norm and head
  void hold_nothing();

  const ModelConfig& config() const { return config_; }
  const PackReader& pack() const { return pack_; }
  int64_t resident_bytes() const;                     // of memory that the weights take
  int64_t bytes_read() const { return bytes_read_; }  // from the pack so far

  MatrixView embedding;                    // [vocab, d]
  MatrixView head;                         // [vocab, d]
  const float* final_norm = nullptr;       // [d]
  const float* output_res_norm = nullptr;  // [d], with attention residuals
  const float* output_res_proj = nullptr;  // [d], with attention residuals
  std::vector<LayerWeights> layers;

 private:
  void read_embedding();
  void read_layer(size_t layer);
  void read_output();
  MatrixView matrix(const std::string& name);
  const float* vector(const std::string& name);
  AlignedBytes read(const PackTensor& tensor);        // as it lies in the pack
  AlignedBytes read_floats(const std::string& name);  // widened
  const std::byte* keep(AlignedBytes extent);
  void list_experts(const PlanLayer* plan, MoeWeights& moe) const;
  void load_router(const std::string& prefix, const PlanLayer* plan, MoeWeights& moe);
  KdaWeights load_kda(const std::string& prefix);
  MlaWeights load_mla(const std::string& prefix);
  MlpWeights load_mlp(const std::string& prefix);
  MoeWeights load_moe(const std::string& prefix, int64_t layer);

  const PackReader& pack_;
  const ModelConfig& config_;
  bool check_hashes_;
  Residence residence_;
  const PrunePlan* plan_;  // outlives this where weights are read later
  MissingRule missing_;
  Backend* device_;  // null: all is on the host
  std::vector<AlignedBytes> storage_;
  SmallArrays small_;
  std::vector<BackendVector<std::byte>> device_storage_;
  int64_t bytes_read_ = 0;
};

}  // namespace k3
