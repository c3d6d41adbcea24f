#include "runtime/named_matrix.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/loaded_model.h"
#include "schema/model_tensors.h"
#include "tests/runtime/packs.h"

namespace k3 {
namespace {

class NamedMatrix : public testing::TestWithParam<const char*> {};

TEST_P(NamedMatrix, EveryMatrixOfEveryLayerIsFoundOnceWithItsShape) {
  LoadedModel model({.pack_path = test::pack_path(GetParam())});
  std::set<const MatrixView*> seen;
  for (const ExpectedTensor& tensor : expected_tensors(model.config())) {
    const MatrixPlace place = find_matrix(model.weights(), tensor.name);
    // Attention residual queries are vectors that the checkpoint keeps as one row.
    const bool is_matrix =
        tensor.name.starts_with("model.layers.") && tensor.shape.rank() == 2 && tensor.shape[0] > 1;
    if (!is_matrix) {
      EXPECT_EQ(place.view, nullptr) << tensor.name;
      continue;
    }
    ASSERT_NE(place.view, nullptr) << tensor.name;
    EXPECT_TRUE(seen.insert(place.view).second) << tensor.name;
    EXPECT_EQ(place.view->rows, tensor.shape[0]) << tensor.name;
    EXPECT_EQ(place.view->cols, tensor.shape[1]) << tensor.name;
    EXPECT_TRUE(tensor.name.starts_with("model.layers." + std::to_string(place.layer) + "."));
  }
}

TEST(NamedMatrixOfNano, WhatIsNoMatrixIsNotFound) {
  LoadedModel model({.pack_path = test::pack_path("nano")});
  for (const char* name :
       {"lm_head.weight", "model.layers.99.self_attn.q_proj.weight",
        "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.A_log",
        "model.layers.0.block_sparse_moe.gate.weight", "model.layers.x.mlp.up_proj.weight", ""}) {
    EXPECT_EQ(find_matrix(model.weights(), name).view, nullptr) << name;
  }
}

K3_FOR_EVERY_PACK(NamedMatrix);

}  // namespace
}  // namespace k3
