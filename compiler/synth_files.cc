// One shard after the other, its pieces in parallel: each thread makes one piece in memory and
// writes it at its offset, so memory is one piece a thread whatever the shard's size.
//
// Nothing is synchronised to the device: what a power failure takes can be made again.
#include "compiler/synth_files.h"

#include <fcntl.h>
#include <tbb/parallel_for.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>

#include "compiler/quantities.h"
#include "compiler/synth_weights.h"
#include "schema/error.h"
#include "schema/little_endian.h"
#include "schema/output_file.h"
#include "schema/safetensors.h"

namespace k3 {
namespace {

OutputFile create_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) throw Error(path, ": cannot create: ", std::strerror(errno));
  return {descriptor, path};
}

void write_shard(const std::string& path, const std::vector<SynthTensor>& tensors, uint64_t seed,
                 bool headers_only, Progress& progress) {
  const OutputFile file = create_file(path);
  const std::string header = safetensors_header(tensors);
  const auto data_begin = static_cast<int64_t>(header.size());
  int64_t data_bytes = 0;
  for (const SynthTensor& tensor : tensors) data_bytes += tensor.bytes();
  if (::ftruncate(file.descriptor(), data_begin + data_bytes) != 0) {
    throw Error(path, ": cannot make it ", data_begin + data_bytes,
                " bytes: ", std::strerror(errno));
  }
  file.write_at(0, std::as_bytes(std::span(header)));
  if (headers_only) return;

  const std::vector<SynthPiece> pieces = cut_into_pieces(tensors);
  tbb::parallel_for(size_t{0}, pieces.size(), [&](size_t i) {
    std::vector<std::byte> bytes(static_cast<size_t>(pieces[i].length_bytes));
    make_weights(tensors, pieces[i], seed, bytes);
    file.write_at(data_begin + pieces[i].offset_bytes, bytes);
    progress.advance(pieces[i].length_bytes);
  });
}

}  // namespace

void check_disk_space(const std::string& folder, int64_t data_bytes) {
  constexpr int64_t kSmallFiles = int64_t{64} << 20;  // K3's index, a hundred headers
  std::error_code error;
  const auto parent = std::filesystem::absolute(folder).parent_path();
  const std::filesystem::space_info space = std::filesystem::space(parent, error);
  if (error) throw Error(parent.string(), ": ", error.message());
  const auto free_bytes = static_cast<int64_t>(space.available);
  if (data_bytes <= free_bytes - kSmallFiles) return;
  throw Error(folder, ": needs ", sized(data_bytes + kSmallFiles), ", the disk has ",
              sized(free_bytes), " left");
}

std::string safetensors_header(const std::vector<SynthTensor>& tensors) {
  std::string text(kSafetensorsPrefixBytes, '\0');
  int64_t offset_bytes = 0;
  for (const SynthTensor& tensor : tensors) {
    text.append(&tensor == tensors.data() ? "{\"" : ",\"").append(tensor.name);
    text.append("\":{\"dtype\":\"").append(dtype_name(tensor.dtype)).append("\",\"shape\":[");
    for (int i = 0; i < tensor.shape.rank(); ++i) {
      text.append(i > 0 ? "," : "").append(std::to_string(tensor.shape[i]));
    }
    text.append("],\"data_offsets\":[").append(std::to_string(offset_bytes)).append(",");
    offset_bytes += tensor.bytes();
    text.append(std::to_string(offset_bytes)).append("]}");
  }
  text += '}';
  constexpr size_t kAlignment = 8;
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  store_little_endian(static_cast<uint64_t>(text.size() - kSafetensorsPrefixBytes),
                      std::as_writable_bytes(std::span(text)).data());
  return text;
}

void write_synth_shards(const std::string& folder, const SynthShards& shards, uint64_t seed,
                        bool headers_only, Progress& progress) {
  if (!headers_only) progress.start("making weights", shards.total_bytes());
  for (int64_t shard = 0; shard < shards.count(); ++shard) {
    write_shard(folder + '/' + shards.file_name(shard), shards.tensors(shard), seed, headers_only,
                progress);
  }
  if (!headers_only) progress.finish();
}

void write_synth_index(const std::string& folder, const SynthShards& shards) {
  constexpr size_t kBlockBytes = size_t{1} << 20;
  const OutputFile file = create_file(folder + "/model.safetensors.index.json");
  int64_t written_bytes = 0;
  std::string text =
      "{\n  \"metadata\": {\n    \"total_size\": " + std::to_string(shards.total_bytes()) +
      "\n  },\n  \"weight_map\": {";
  const auto write = [&] {
    file.write_at(written_bytes, std::as_bytes(std::span(text)));
    written_bytes += static_cast<int64_t>(text.size());
    text.clear();
  };
  const char* before = "\n    \"";
  shards.visit_by_name([&](const std::string& name, int64_t shard) {
    text.append(before).append(name).append("\": \"").append(shards.file_name(shard)).append("\"");
    before = ",\n    \"";
    if (text.size() >= kBlockBytes) write();
  });
  text += "\n  }\n}\n";
  write();
}

void write_text_file(const std::string& path, const std::string& text) {
  create_file(path).write_at(0, std::as_bytes(std::span(text)));
}

}  // namespace k3
