#include "compiler/loss_report.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/quantities.h"
#include "compiler/report_text.h"
#include "passes/pass_results.h"
#include "schema/error.h"
#include "schema/family.h"

namespace k3 {
namespace {

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The report cut into fields: the first row names the columns. Its text is hostile until each row
// has as many fields as the first.
struct LossTable {
  std::string text;
  std::vector<std::vector<std::string_view>> rows;

  size_t column(const PackReader& pack, std::string_view name) const {
    const auto& names = rows.front();
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      throw Error(pack.path(), ": report ", kTrunkErrorsReport, ": has no column ", name);
    }
    return static_cast<size_t>(found - names.begin());
  }
};

bool has_losses(const PackReader& pack) {
  const auto& reports = pack.index().provenance.reports;
  return std::any_of(reports.begin(), reports.end(),
                     [](const PackReport& report) { return report.name == kTrunkErrorsReport; });
}

void read_losses(const PackReader& pack, LossTable& table) {
  table.text = report_text(pack, kTrunkErrorsReport);
  for (const std::string_view line : split(table.text, '\n')) {
    if (line.empty()) continue;
    table.rows.push_back(split(line, '\t'));
    if (table.rows.back().size() == table.rows.front().size()) continue;
    throw Error(pack.path(), ": report ", kTrunkErrorsReport, ": line ", table.rows.size(), " has ",
                table.rows.back().size(), " fields, expected ", table.rows.front().size());
  }
  if (table.rows.empty()) {
    throw Error(pack.path(), ": report ", kTrunkErrorsReport, ": is empty");
  }
}

// The report is the solver's: what replaced its scales or codes is not measured by matrix.
bool is_tuned(const PackReader& pack) {
  const auto& options = pack.index().provenance.options;
  return std::any_of(options.begin(), options.end(),
                     [](const auto& option) { return option.first == "tuning"; });
}

// The columns that people are shown, each as the root mean square over some matrices.
constexpr std::array<std::string_view, 3> kShown = {"fit", "select", "bound"};
struct ErrorSums {
  int64_t matrices = 0;
  std::array<double, kShown.size()> squares = {};

  std::string typical(size_t shown) const {
    return percent(std::sqrt(squares[shown] / static_cast<double>(matrices)));
  }
};

}  // namespace

void print_losses(const PackReader& pack, std::ostream& out) {
  if (!has_losses(pack)) return;
  LossTable table;
  read_losses(pack, table);
  const size_t name = table.column(pack, "tensor");
  const size_t format = table.column(pack, "format");
  std::map<std::pair<std::string_view, std::string_view>, ErrorSums> sums;
  for (size_t row = 1; row < table.rows.size(); ++row) {
    const auto& fields = table.rows[row];
    const PackTensor* tensor = pack.find(fields[name]);
    if (tensor == nullptr) {
      throw Error(pack.path(), ": report ", kTrunkErrorsReport, ": names ", fields[name],
                  ", which is not in this pack");
    }
    ErrorSums& to = sums[{family_name(tensor->family), fields[format]}];
    ++to.matrices;
    for (size_t i = 0; i < kShown.size(); ++i) {
      const double value = number(fields[table.column(pack, kShown[i])]).value_or(0);
      to.squares[i] += value * value;
    }
  }
  for (const auto& [key, sum] : sums) {
    out << "output error of " << sum.matrices << " " << key.first << " matrices in " << key.second
        << (is_tuned(pack) ? ", before tuning: " : ": ") << sum.typical(0) << " fit, "
        << sum.typical(1) << " select, bound " << sum.typical(2) << '\n';
  }
}

void write_losses(const PackReader& pack, JsonWriter& json) {
  json.begin_array();
  if (has_losses(pack)) {
    LossTable table;
    read_losses(pack, table);
    for (size_t row = 1; row < table.rows.size(); ++row) {
      json.begin_object();
      for (size_t i = 0; i < table.rows[row].size(); ++i) {
        std::string column(table.rows.front()[i]);
        std::replace(column.begin(), column.end(), ' ', '_');
        json.key(column);
        const std::string_view field = table.rows[row][i];
        const std::optional<double> value = number(field);
        if (field == "-") {
          json.null();
        } else if (value) {
          json.value(*value);
        } else {
          json.value(field);
        }
      }
      json.end_object();
    }
  }
  json.end_array();
}

}  // namespace k3
