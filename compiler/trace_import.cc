#include "compiler/trace_import.h"

#include <simdjson.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "schema/error.h"
#include "schema/file.h"
#include "schema/hash.h"
#include "schema/pack_reader.h"
#include "schema/router_hash.h"
#include "schema/trace_writer.h"

namespace k3 {
namespace {

namespace dom = simdjson::dom;

constexpr int64_t kLargestFile = int64_t{4} << 30;
constexpr int64_t kLargestId = 65534;
constexpr size_t kBlockTokens = 1024;

struct ImportedToken {
  uint32_t position = 0;
  std::vector<std::vector<uint16_t>> layers;
};

ImportedToken parse_token(dom::parser& parser, std::string_view line, const std::string& where) {
  dom::object object;
  const auto fault = parser.parse(line.data(), line.size()).get(object);
  if (fault != simdjson::SUCCESS) {
    throw Error(where, ": ", simdjson::error_message(fault),
                ", expected {\"tok\":n,\"layers\":[...]}");
  }
  ImportedToken token;
  int64_t position = -1;
  if (object["tok"].get(position) != simdjson::SUCCESS || position < 0 ||
      position >= int64_t{1} << 32) {
    throw Error(where, ": \"tok\" is missing or not a token's number");
  }
  token.position = static_cast<uint32_t>(position);
  dom::array layers;
  if (object["layers"].get(layers) != simdjson::SUCCESS) {
    throw Error(where, ": \"layers\" is missing or not a list");
  }
  for (const dom::element layer : layers) {
    std::vector<uint16_t>& ids = token.layers.emplace_back();
    dom::array list;
    if (layer.get(list) != simdjson::SUCCESS) throw Error(where, ": a layer is not a list of ids");
    for (const dom::element element : list) {
      int64_t id = -1;
      if (element.get(id) != simdjson::SUCCESS || id < 0 || id > kLargestId) {
        throw Error(where, ": expert is ", simdjson::minify(element), ", expected 0 to ",
                    kLargestId);
      }
      ids.push_back(static_cast<uint16_t>(id));
    }
    std::vector<uint16_t> sorted = ids;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
      throw Error(where, ": a layer names an expert twice");
    }
  }
  return token;
}

std::vector<ImportedToken> parse_lines(std::string_view text, const std::string& path) {
  std::vector<ImportedToken> tokens;
  dom::parser parser;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = path + ": line " + std::to_string(number);
    tokens.push_back(parse_token(parser, line, where));
    const ImportedToken& first = tokens.front();
    if (first.layers.empty() || first.layers.front().empty()) {
      throw Error(where, ": has no layer, or a layer without experts");
    }
    const std::vector<std::vector<uint16_t>>& layers = tokens.back().layers;
    const auto is_as_wide = [&](const auto& ids) {
      return ids.size() == first.layers.front().size();
    };
    if (layers.size() != first.layers.size() ||
        !std::all_of(layers.begin(), layers.end(), is_as_wide)) {
      throw Error(where, ": has other layers or choices than the first token, which has ",
                  first.layers.size(), " layers with ", first.layers.front().size(), " experts");
    }
  }
  if (tokens.empty()) throw Error(path, ": has no token");
  return tokens;
}

TraceHeader header_for(const TraceImportRequest& request,
                       const std::vector<ImportedToken>& tokens) {
  const auto layers = std::ssize(tokens.front().layers);
  TraceHeader header{.experts = request.experts,
                     .experts_per_token = std::ssize(tokens.front().layers.front())};
  if (!request.pack.empty()) {
    const PackReader pack(request.pack);
    const PackContent& content = pack.index().content;
    header.router_xxh3 = router_hash(content);
    header.experts = content.config.experts;
    if (layers != std::ssize(content.banks) ||
        header.experts_per_token != content.config.experts_per_token) {
      throw Error(request.json_lines, ": has ", layers, " layers with ", header.experts_per_token,
                  " experts a token, ", request.pack, " has ", content.banks.size(), " with ",
                  content.config.experts_per_token);
    }
    for (const PackBank& bank : content.banks) {
      header.layers.push_back(static_cast<uint32_t>(bank.layer));
    }
    header.expert_bytes = content.banks.front().experts.front().extent.length_bytes;
  } else {
    for (int64_t layer = 0; layer < layers; ++layer) {
      header.layers.push_back(static_cast<uint32_t>(layer));
    }
  }
  if (request.expert_bytes > 0) header.expert_bytes = request.expert_bytes;
  int64_t largest = 0;
  for (const ImportedToken& token : tokens) {
    for (const std::vector<uint16_t>& ids : token.layers) {
      largest = std::max<int64_t>(largest, *std::max_element(ids.begin(), ids.end()));
    }
  }
  if (header.experts == 0) header.experts = std::max(largest + 1, header.experts_per_token);
  if (largest >= header.experts) {
    throw Error(request.json_lines, ": chooses expert ", largest, ", a layer has ", header.experts);
  }
  return header;
}

}  // namespace

int64_t import_trace(const TraceImportRequest& request) {
  const std::vector<std::byte> bytes = read_whole_file(request.json_lines, kLargestFile);
  const std::vector<ImportedToken> tokens =
      parse_lines({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, request.json_lines);
  TraceWriter writer(request.output, header_for(request, tokens));
  const TraceDocument document{xxh3(bytes),
                               std::filesystem::path(request.json_lines).stem().string()};
  for (size_t first = 0; first < tokens.size(); first += kBlockTokens) {
    const size_t end = std::min(first + kBlockTokens, tokens.size());
    TraceBlock block{.first_token = static_cast<int64_t>(first),
                     .layers = std::ssize(writer.header().layers),
                     .documents = {document}};
    for (size_t i = first; i < end; ++i) {
      block.tokens.push_back({0, tokens[i].position, TracePhase::kDecode});
    }
    for (size_t layer = 0; layer < writer.header().layers.size(); ++layer) {
      for (size_t i = first; i < end; ++i) {
        const std::vector<uint16_t>& ids = tokens[i].layers[layer];
        block.ids.insert(block.ids.end(), ids.begin(), ids.end());
      }
    }
    writer.write(block);
  }
  writer.finish(std::ssize(tokens));
  return std::ssize(tokens);
}

}  // namespace k3
