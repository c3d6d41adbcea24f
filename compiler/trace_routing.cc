#include "compiler/trace_routing.h"

#include <algorithm>
#include <map>
#include <utility>

#include "schema/error.h"
#include "schema/trace_reader.h"

namespace k3 {
namespace {

// One trace's tokens by number, before it is known which are complete.
struct Assembly {
  std::vector<RoutedToken> tokens;
  std::vector<int64_t> layers_seen;
  std::vector<uint16_t> ids;  // [tokens, layers, k]

  void add(const TraceBlock& block, const std::vector<uint32_t>& document_of, int64_t layers,
           int64_t k) {
    const auto end = static_cast<size_t>(block.first_token + std::ssize(block.tokens));
    if (tokens.size() < end) {
      tokens.resize(end);
      layers_seen.resize(end);
      ids.resize(end * static_cast<size_t>(layers * k), kNoExpert);
    }
    for (int64_t t = 0; t < std::ssize(block.tokens); ++t) {
      const TraceToken& from = block.tokens[static_cast<size_t>(t)];
      const auto at = static_cast<size_t>(block.first_token + t);
      tokens[at] = {document_of[from.document], from.position, from.phase};
      layers_seen[at] += block.layers;
      for (int64_t layer = 0; layer < block.layers; ++layer) {
        const auto source = block.ids.begin() + static_cast<int64_t>(trace_row(block, layer, t, k));
        const auto row =
            ids.begin() + (static_cast<int64_t>(at) * layers + block.first_layer + layer) * k;
        std::copy_n(source, k, row);
        std::sort(row, row + k);  // kNoExpert goes last
      }
    }
  }
};

bool same_shape(const TraceHeader& a, const TraceHeader& b) {
  return a.layers == b.layers && a.experts == b.experts &&
         a.experts_per_token == b.experts_per_token && a.router_xxh3 == b.router_xxh3;
}

}  // namespace

RoutingTable load_routing(std::span<const std::string> paths) {
  K3_CHECK(!paths.empty());
  RoutingTable table;
  std::map<std::pair<uint64_t, std::string>, uint32_t> documents;
  for (const std::string& path : paths) {
    TraceReader reader(path);
    if (&path == &paths.front()) {
      table.header = reader.header();
    } else if (!same_shape(table.header, reader.header())) {
      throw Error(path, ": is of another model than ", paths.front());
    }
    Assembly assembly;
    for (TraceBlock block; reader.next(block);) {
      std::vector<uint32_t> document_of;
      for (const TraceDocument& document : block.documents) {
        const auto [entry, is_new] = documents.try_emplace(
            {document.xxh3, document.domain}, static_cast<uint32_t>(table.documents.size()));
        if (is_new) table.documents.push_back(document);
        document_of.push_back(entry->second);
      }
      assembly.add(block, document_of, table.layers(), table.k());
    }
    if (reader.is_cut()) table.cut.push_back(path);
    const auto width = static_cast<size_t>(table.layers() * table.k());
    for (size_t token = 0; token < assembly.tokens.size(); ++token) {
      if (assembly.layers_seen[token] != table.layers()) {
        ++table.incomplete_tokens;
        continue;
      }
      table.tokens.push_back(assembly.tokens[token]);
      const auto row = assembly.ids.begin() + static_cast<int64_t>(token * width);
      table.ids.insert(table.ids.end(), row, row + static_cast<int64_t>(width));
    }
  }
  if (table.tokens.empty()) throw Error(paths.front(), ": holds no token that every layer saw");
  return table;
}

}  // namespace k3
