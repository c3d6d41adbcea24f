// Items are found by name in one walk over the text. K3's list of sources has half a million lines
// in 60 MB; a table of them would cost more than the one walk that a question needs.
#include "compiler/pack_history.h"

#include <array>
#include <charconv>

#include "compiler/report_text.h"
#include "passes/pass_results.h"
#include "schema/error.h"
#include "schema/printable.h"

namespace k3 {
namespace {

// Calls `use` with the fields of every line behind the header line.
template <size_t kFields, class Use>
void for_each_line(const std::string& path, std::string_view text, const Use& use) {
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (number++ == 0) continue;
    std::array<std::string_view, kFields> fields;
    std::string_view left = line;
    size_t field = 0;
    for (; field < kFields; ++field) {
      const size_t tab = left.find('\t');
      fields[field] = left.substr(0, tab);
      if (tab == std::string_view::npos) break;
      left.remove_prefix(tab + 1);
    }
    if (field + 1 != kFields) {
      throw Error(path, ": line ", number, " of a report: is '", printable(line), "', expected ",
                  kFields, " fields with tabs between");
    }
    use(fields);
  }
}

template <class Number>
Number parse_number(const std::string& path, std::string_view digits) {
  Number value = 0;
  const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (fault != std::errc() || end != digits.data() + digits.size()) {
    throw Error(path, ": a report has '", printable(digits), "', expected a number");
  }
  return value;
}

}  // namespace

PackHistory::PackHistory(const PackReader& pack)
    : path_(pack.path()),
      decisions_(report_text(pack, kDecisionsReport)),
      sources_(report_text(pack, kSourcesReport)) {
  // Trunk tensors stand first and in the index's order.
  const std::string& first = pack.index().content.tensors.front().name;
  const auto found = find_sources([&](std::string_view name) { return name.ends_with(first); });
  if (found.empty()) throw Error(path_, ": report sources: lacks tensor ", first);
  prefix_ = found.front().tensor.substr(0, found.front().tensor.size() - first.size());
}

template <class Wanted>
std::vector<RecordedSource> PackHistory::find_sources(const Wanted& is_wanted) const {
  std::vector<RecordedSource> found;
  for_each_line<4>(path_, sources_, [&](const std::array<std::string_view, 4>& fields) {
    if (!is_wanted(fields[0])) return;
    found.push_back({fields[0], fields[1], parse_number<int64_t>(path_, fields[2]),
                     parse_number<int64_t>(path_, fields[3])});
  });
  return found;
}

std::vector<RecordedSource> PackHistory::sources_of_tensor(std::string_view name) const {
  const std::string wanted = prefix_ + std::string(name);
  return find_sources([&](std::string_view tensor) { return tensor == wanted; });
}

std::vector<RecordedSource> PackHistory::sources_of_expert(int64_t layer, int64_t source_id) const {
  const std::string stem = prefix_ + "model.layers." + std::to_string(layer) +
                           ".block_sparse_moe.experts." + std::to_string(source_id) + ".";
  return find_sources([&](std::string_view tensor) { return tensor.starts_with(stem); });
}

std::vector<RecordedDecision> PackHistory::decisions_about(std::string_view subject) const {
  std::vector<RecordedDecision> found;
  for_each_line<5>(path_, decisions_, [&](const std::array<std::string_view, 5>& fields) {
    if (fields[0] != subject) return;
    found.push_back(
        {fields[0], fields[1], fields[2], fields[3], parse_number<double>(path_, fields[4])});
  });
  return found;
}

}  // namespace k3
