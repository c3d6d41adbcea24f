// A checkpoint folder for one test: written from lists of tensors, gone with the object.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schema/dtype.h"
#include "schema/error.h"

namespace k3::test {

struct TestTensor {
  std::string name;
  Dtype dtype = Dtype::kBf16;
  std::vector<int64_t> shape;

  int64_t bytes() const {
    int64_t bytes = dtype_bytes(dtype);
    for (const int64_t dim : shape) bytes *= dim;
    return bytes;
  }
};

inline std::string header_json(const std::vector<TestTensor>& tensors) {
  std::ostringstream json;
  int64_t offset = 0;
  json << '{';
  for (const TestTensor& tensor : tensors) {
    json << (offset == 0 && &tensor == &tensors.front() ? "" : ",") << '"' << tensor.name
         << "\":{\"dtype\":\"" << dtype_name(tensor.dtype) << "\",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); ++i) json << (i ? "," : "") << tensor.shape[i];
    json << "],\"data_offsets\":[" << offset << ',' << offset + tensor.bytes() << "]}";
    offset += tensor.bytes();
  }
  json << '}';
  std::string text = json.str();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

// `json` with its length before it.
inline std::string with_length(const std::string& json) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(json.size() >> (8 * i) & 255u);
  return bytes + json;
}

class CheckpointFolder {
 public:
  CheckpointFolder() : path_(std::filesystem::temp_directory_path() / "k3c_test_XXXXXX") {
    std::string pattern = path_.string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~CheckpointFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string file(std::string_view name) const { return (path_ / name).string(); }

  void write(std::string_view name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

  // The header in full, the data as a hole that reads as zeros and takes no disk.
  void write_shard(std::string_view name, const std::vector<TestTensor>& tensors) const {
    const std::string bytes = with_length(header_json(tensors));
    write(name, bytes);
    auto end = static_cast<uintmax_t>(bytes.size());
    for (const TestTensor& tensor : tensors) end += static_cast<uintmax_t>(tensor.bytes());
    std::filesystem::resize_file(path_ / name, end);
  }

  void write_index(const std::vector<std::pair<std::string, std::string>>& entries,
                   const std::string& metadata = "{}") const {
    std::ofstream out(path_ / "model.safetensors.index.json", std::ios::binary);
    out << "{\"metadata\":" << metadata << ",\"weight_map\":{";
    const char* comma = "";
    for (const auto& [tensor, shard] : entries) {
      out << comma << '"' << tensor << "\":\"" << shard << '"';
      comma = ",\n";
    }
    out << "}}";
  }

 private:
  std::filesystem::path path_;
};

// The message of the Error that `run` throws; fails the test if it throws none.
template <class Run>
std::string message_of(const Run& run) {
  try {
    run();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

inline testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << text << "\" lacks \"" << part << "\"";
}

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace k3::test
