// A hash turns nearly every mutation of a pack into the same refusal, so the pack's target takes an
// index without hashes and builds the file around it: frame and index hash are right, the extents
// are holes. What is fuzzed is then what an attacker would write, who can compute a hash too.

#include "tests/fuzz/fuzz_targets.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "compiler/config_json.h"
#include "compiler/kimi_k3_config.h"
#include "compiler/kimi_linear_config.h"
#include "compiler/shard_index.h"
#include "schema/error.h"
#include "schema/hash.h"
#include "schema/little_endian.h"
#include "schema/pack_check.h"
#include "schema/pack_decode.h"
#include "schema/pack_frame.h"
#include "schema/pack_reader.h"
#include "schema/safetensors.h"

namespace k3 {
namespace {

const std::string kPath = "fuzzed";

// Not K3_CHECK, which throws: a fuzzer must stop here.
void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

template <class Body>
FuzzOutcome refused_or(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    const std::string_view message = error.what();
    require(!message.empty(), "an error without a message");
    require(message.find('\n') == std::string_view::npos, "an error of more than one line");
    return FuzzOutcome::kRefused;
  }
  return FuzzOutcome::kAccepted;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The file's length is not the input's: tensors of any size can then be described in a few bytes.
constexpr size_t kLengthBytes = 8;

FuzzOutcome run_header(std::span<const std::byte> input) {
  return refused_or([&] {
    if (input.size() < kLengthBytes + kSafetensorsPrefixBytes) throw Error(kPath, ": too short");
    const auto file_bytes = static_cast<int64_t>(load_little_endian<uint64_t>(input.data()));
    if (file_bytes < 0) throw Error(kPath, ": no file is that long");
    const auto file = input.subspan(kLengthBytes);
    const int64_t length =
        safetensors_header_bytes(kPath, file.first<kSafetensorsPrefixBytes>(), file_bytes);
    const auto json = file.subspan(kSafetensorsPrefixBytes);
    if (length > static_cast<int64_t>(json.size())) throw Error(kPath, ": the header is cut");
    const SafetensorsHeader header = parse_safetensors_header(
        kPath, text_of(json.first(static_cast<size_t>(length))), file_bytes);
    int64_t end = header.data_offset_bytes();
    for (int64_t i = 0; i < header.tensors(); ++i) {
      require(header.offset_bytes(i) == end, "a hole or an overlap was accepted");
      require(header.length_bytes(i) >= 0, "a negative length was accepted");
      end += header.length_bytes(i);
    }
    require(end == file_bytes, "bytes that belong to no tensor were accepted");
  });
}

FuzzOutcome run_index(std::span<const std::byte> input) {
  return refused_or([&] {
    read_shard_index(kPath, text_of(input), [](std::string_view tensor, std::string_view shard) {
      check_shard_name(kPath, tensor, shard);
      require(shard.find('/') == std::string_view::npos, "a shard in another folder was accepted");
    });
  });
}

FuzzOutcome run_config(std::span<const std::byte> input) {
  const auto read = [&](ModelConfig (*read_config)(const ConfigFile&)) {
    return refused_or([&] {
      const ConfigFile file(kPath, {input.begin(), input.end()});
      check_config(read_config(file), kPath);
    });
  };
  const FuzzOutcome k3 = read(read_kimi_k3_config);
  const FuzzOutcome linear = read(read_kimi_linear_config);
  return k3 == FuzzOutcome::kAccepted ? k3 : linear;
}

// A file that lives in memory and is gone with its descriptor. Holes take no memory.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("k3-fuzz", MFD_CLOEXEC)) {
    require(descriptor_ >= 0, "memfd_create failed");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }
  void write(std::span<const std::byte> bytes, int64_t offset_bytes) const {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset_bytes);
    require(written == static_cast<ssize_t>(bytes.size()), "a write into memory failed");
  }

 private:
  int descriptor_;
};

FuzzOutcome run_pack(std::span<const std::byte> input) {
  constexpr int64_t kVerifiedBytes = int64_t{4} << 20;  // reading holes takes time
  return refused_or([&] {
    if (input.size() < kLengthBytes) throw Error(kPath, ": too short");
    const auto index = input.subspan(kLengthBytes);
    PackFrame frame;
    // Far offsets belong to files that no memory holds; 2^41 is beyond K3.
    constexpr int64_t kFarthest = int64_t{1} << 41;
    const uint64_t offset = load_little_endian<uint64_t>(input.data());
    if (offset > uint64_t{kFarthest}) throw Error(kPath, ": too far");
    frame.index = {static_cast<int64_t>(offset), static_cast<int64_t>(index.size()), xxh3(index)};
    frame.file_bytes = frame.index.end_bytes();
    if (frame.index.offset_bytes < kFrameBytes) throw Error(kPath, ": over the frame");

    const MemoryFile file;
    file.write(encode_frame(frame), 0);
    file.write(index, frame.index.offset_bytes);
    const PackReader pack(file.path());
    for (const PackTensor& tensor : pack.index().content.tensors) {
      require(pack.find(tensor.name) == &tensor, "two tensors of one name were accepted");
      require(tensor.extent.offset_bytes >= kFrameBytes &&
                  tensor.extent.end_bytes() <= frame.index.offset_bytes,
              "an extent outside the file was accepted");
    }
    if (frame.file_bytes <= kVerifiedBytes) static_cast<void>(pack.verify());
  });
}

constexpr std::array<FuzzTarget, 4> kTargets = {{
    {"header", "u64 length of the file, then the file up to the end of its header", run_header},
    {"index", "model.safetensors.index.json", run_index},
    {"config", "config.json", run_config},
    {"pack", "u64 offset of the index, then the index", run_pack},
}};

}  // namespace

std::span<const FuzzTarget> fuzz_targets() {
  return kTargets;
}

const FuzzTarget* find_fuzz_target(std::string_view name) {
  const auto* const found = std::find_if(kTargets.begin(), kTargets.end(),
                                         [&](const FuzzTarget& row) { return row.name == name; });
  return found == kTargets.end() ? nullptr : found;
}

}  // namespace k3
