#include "compiler/report.h"

#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "passes/progress.h"

namespace k3 {
namespace {

using RowKey = std::pair<Family, Format>;

ReportRow& row_of(std::map<RowKey, ReportRow>& rows, Family family, Format format) {
  ReportRow& row = rows[{family, format}];
  row.family = family;
  row.format = format;
  return row;
}

std::string format_fixed(double value, int decimals) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

std::string padded(const std::string& text, int width) {
  const std::string fill(static_cast<size_t>(std::max(0, width - static_cast<int>(text.size()))),
                         ' ');
  return fill + text;
}

void print_row(const std::string& family, const std::string& format, const ReportRow& row,
               std::ostream& out) {
  out << family << padded(format, 27 - static_cast<int>(family.size()))
      << padded(format_count(row.tensors), 10) << padded(format_count(row.parameters), 20)
      << padded(format_fixed(row.bits_per_weight(), 3), 10) << padded(format_count(row.bytes), 20)
      << padded(format_bytes(row.bytes_per_token), 12) << '\n';
}

}  // namespace

std::vector<ReportRow> summarize(const PackContent& content) {
  std::map<RowKey, ReportRow> rows;
  for (const PackTensor& tensor : content.tensors) {
    ReportRow& row = row_of(rows, tensor.family, tensor.format);
    const int64_t bytes = tensor.extent.length_bytes;
    ++row.tensors;
    row.parameters += tensor.shape.elements().value_or(0);
    row.bytes += bytes;
    row.bytes_per_token += tensor.family == Family::kEmbedding ? bytes / tensor.shape[0] : bytes;
  }
  const int64_t expert_parameters =
      3 * content.config.expert_width() * content.config.expert_intermediate_size;
  for (const PackBank& bank : content.banks) {
    ReportRow& row = row_of(rows, Family::kRoutedExperts, bank.format);
    const auto experts = static_cast<int64_t>(bank.experts.size());
    row.tensors += 3 * experts;
    row.parameters += experts * expert_parameters;
    for (const PackExpert& expert : bank.experts) row.bytes += expert.extent.length_bytes;
    if (experts > 0) {  // all experts of a bank have the same length
      row.bytes_per_token +=
          content.config.experts_per_token * bank.experts.front().extent.length_bytes;
    }
  }
  std::vector<ReportRow> list;
  for (const auto& entry : rows) list.push_back(entry.second);
  return list;
}

ReportRow total_of(const std::vector<ReportRow>& rows) {
  ReportRow total;
  for (const ReportRow& row : rows) {
    total.tensors += row.tensors;
    total.parameters += row.parameters;
    total.bytes += row.bytes;
    total.bytes_per_token += row.bytes_per_token;
  }
  return total;
}

void print_table(const std::vector<ReportRow>& rows, std::ostream& out) {
  out << "family               format   tensors          parameters  bits/wgt               bytes"
         " bytes/token\n";
  for (const ReportRow& row : rows) {
    print_row(std::string(family_name(row.family)), std::string(format_name(row.format)), row, out);
  }
  print_row("total", "", total_of(rows), out);
}

void write_rows(const std::vector<ReportRow>& rows, JsonWriter& json) {
  json.begin_array();
  for (const ReportRow& row : rows) {
    json.begin_object();
    json.member("family", family_name(row.family));
    json.member("format", format_name(row.format));
    json.member("tensors", row.tensors);
    json.member("parameters", row.parameters);
    json.member("bits_per_weight", row.bits_per_weight());
    json.member("bytes", row.bytes);
    json.member("bytes_per_token", row.bytes_per_token);
    json.end_object();
  }
  json.end_array();
}

void print_memory(const MemoryNeed& need, std::ostream& out) {
  out << "memory to run: " << format_bytes(need.least_bytes()) << " (weights "
      << format_bytes(need.weights_bytes) << ", one layer's experts of a token "
      << format_bytes(need.least_expert_bytes) << ", state " << format_bytes(need.state_bytes)
      << "), " << format_bytes(need.all_bytes()) << " with every expert; and "
      << format_bytes(need.position_bytes) << " a position\n";
}

void write_memory(const MemoryNeed& need, JsonWriter& json) {
  json.begin_object();
  json.member("weights_bytes", need.weights_bytes);
  json.member("least_expert_bytes", need.least_expert_bytes);
  json.member("all_expert_bytes", need.all_expert_bytes);
  json.member("state_bytes", need.state_bytes);
  json.member("position_bytes", need.position_bytes);
  json.member("least_bytes", need.least_bytes());
  json.member("all_bytes", need.all_bytes());
  json.end_object();
}

std::string format_count(int64_t count) {
  const std::string digits = std::to_string(count);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool starts_group = i > 0 && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-';
    if (starts_group) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace k3
