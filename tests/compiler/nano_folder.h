// The nano checkpoint as lists that a test may change, and a folder to import the changed one from.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/checkpoint.h"
#include "compiler/families.h"
#include "passes/model.h"
#include "tests/compiler/checkpoint_folder.h"

namespace k3::test {

inline const std::string kNano = K3_SOURCE_DIR "/examples/nano/checkpoint";

// Headers, config and side files of nano; its data is left out, and reads as zeros.
class NanoFolder : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const Checkpoint checkpoint(kNano);
    tensors_ = new std::vector<TestTensor>;
    for (int64_t i = 0; i < checkpoint.tensors(); ++i) {
      const CheckpointTensor tensor = checkpoint.tensor(i);
      const auto dims = tensor.shape.dims();
      tensors_->push_back(
          {std::string(tensor.name), tensor.dtype, std::vector(dims.begin(), dims.end())});
    }
  }
  static void TearDownTestSuite() {
    delete tensors_;
    tensors_ = nullptr;
  }
  NanoFolder() : config_(read_text(kNano + "/config.json")) {
    folder_.write("config.json", config_);
    folder_.write("tiktoken.model", "ranks");
    folder_.write("tokenizer_config.json", "{}");
  }

  Model import(const std::vector<TestTensor>& tensors) const {
    folder_.write_shard("model.safetensors", tensors);
    return import_model(Checkpoint(folder_.path()));
  }
  std::string message(const std::vector<TestTensor>& tensors) const {
    return message_of([&] { import(tensors); });
  }
  // Replaces `number` of `from` (from 0) in config.json and imports.
  std::string message_with(const std::string& from, const std::string& to, int number = 0) const {
    std::string text = config_;
    size_t at = text.find(from);
    for (; number > 0 && at != std::string::npos; --number) at = text.find(from, at + 1);
    EXPECT_NE(at, std::string::npos) << from;
    folder_.write("config.json", text.replace(at, from.size(), to));
    return message(*tensors_);
  }

  static inline std::vector<TestTensor>* tensors_ = nullptr;
  std::string config_;
  CheckpointFolder folder_;
};

}  // namespace k3::test
