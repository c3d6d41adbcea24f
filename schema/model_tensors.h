// The table of tensors that a ModelConfig demands: the one place that says what a complete model
// is.
//
// The reader refuses a pack that lacks one, has one too many or has another shape, so that the
// runtime can ask for any of these names without a second check.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schema/family.h"
#include "schema/model_config.h"
#include "schema/shape.h"

namespace k3 {

struct ExpectedTensor {
  std::string name;
  Family family = Family::kNorm;
  Shape shape;
  // A matrix whose product is made of integers under int8. False for what stays in source
  // precision: embeddings, norms, routers, low-rank gates, convolutions, residual queries, and
  // kv_b_proj, whose absorbed use is a transposed product.
  bool may_quantize = false;
};

// Every tensor but the routed experts', layer by layer, then embedding, head and final norms.
// A_log has one entry per head: releases store it wider, filled with zeros. `config` must have
// passed check_config.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

}  // namespace k3
