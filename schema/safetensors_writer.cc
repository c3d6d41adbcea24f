#include "schema/safetensors_writer.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "schema/error.h"
#include "schema/json_writer.h"

namespace k3 {
namespace {

std::string header_text(std::span<const TensorToWrite> tensors,
                        std::span<const std::pair<std::string, std::string>> metadata) {
  std::ostringstream out;
  JsonWriter json(out);
  json.begin_object();
  if (!metadata.empty()) {
    json.key("__metadata__");
    json.begin_object();
    for (const auto& [name, value] : metadata) json.member(name, value);
    json.end_object();
  }
  int64_t offset_bytes = 0;
  for (const TensorToWrite& tensor : tensors) {
    const auto length_bytes = static_cast<int64_t>(tensor.bytes.size());
    K3_CHECK(tensor.shape.elements() == length_bytes / dtype_bytes(tensor.dtype));
    json.key(tensor.name);
    json.begin_object();
    json.member("dtype", dtype_name(tensor.dtype));
    json.key("shape");
    json.begin_array();
    for (int64_t dim : tensor.shape.dims()) json.value(dim);
    json.end_array();
    json.key("data_offsets");
    json.begin_array();
    json.value(offset_bytes);
    json.value(offset_bytes + length_bytes);
    json.end_array();
    json.end_object();
    offset_bytes += length_bytes;
  }
  json.end_object();
  std::string text = std::move(out).str();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // tensors start 8-byte aligned
  return text;
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                       std::span<const std::pair<std::string, std::string>> metadata) {
  const std::string header = header_text(tensors, metadata);
  const std::string neighbour = path + ".part";
  std::ofstream file(neighbour, std::ios::binary | std::ios::trunc);
  const uint64_t header_bytes = header.size();
  file.write(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const TensorToWrite& tensor : tensors) {
    file.write(reinterpret_cast<const char*>(tensor.bytes.data()),
               static_cast<std::streamsize>(tensor.bytes.size()));
  }
  file.close();
  if (!file || std::rename(neighbour.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    std::remove(neighbour.c_str());
    throw Error(path, ": cannot write: ", std::strerror(reason));
  }
}

}  // namespace k3
