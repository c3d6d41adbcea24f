#include "compiler/receipt_table.h"

#include <simdjson.h>

#include <iomanip>
#include <optional>
#include <string>

#include "compiler/quantities.h"
#include "schema/printable.h"

namespace k3 {
namespace {

namespace dom = simdjson::dom;

// The number at a path such as "/kl/mean", or nothing.
std::optional<double> number_at(dom::element from, const char* path) {
  double value = 0;
  if (from.at_pointer(path).get(value) != simdjson::SUCCESS) return std::nullopt;
  return value;
}

std::string text_at(dom::element from, const char* path) {
  std::string_view text;
  if (from.at_pointer(path).get(text) != simdjson::SUCCESS) return "-";
  return printable(text);
}

std::string decimals(std::optional<double> value, int digits, double factor = 1) {
  return value ? fixed(factor * *value, digits) : "-";
}

std::string interval(dom::element from) {
  return decimals(number_at(from, "/kl/mean"), 4) + " [" + decimals(number_at(from, "/kl/low"), 4) +
         ", " + decimals(number_at(from, "/kl/high"), 4) + "]";
}

void print_texts(dom::element from, const std::string& experts, std::ostream& out) {
  dom::array texts;
  if (from.at_pointer("/texts").get(texts) != simdjson::SUCCESS) return;
  for (const dom::element text : texts) {
    out << "  " << std::left << std::setw(13) << experts << std::setw(18)
        << text_at(text, "/text").substr(0, 17) << std::right << std::setw(11)
        << decimals(number_at(text, "/perplexity"), 3) << std::setw(27) << interval(text)
        << std::setw(9) << decimals(number_at(text, "/kl_p99"), 3) << std::setw(10)
        << decimals(number_at(text, "/flipped_experts"), 1, 100) << std::setw(10)
        << decimals(number_at(text, "/missing_mass"), 1, 100) << std::setw(10)
        << decimals(number_at(text, "/all_present"), 1, 100) << '\n';
  }
}

}  // namespace

void print_receipt(const PackReceipt& receipt, std::ostream& out) {
  dom::parser parser;
  dom::element root;
  const bool is_table =
      receipt.kind == "k3eval" &&
      parser.parse(receipt.text.data(), receipt.text.size()).get(root) == simdjson::SUCCESS &&
      root.at_pointer("/texts").error() == simdjson::SUCCESS;
  if (!is_table) {
    out << "receipt " << receipt.kind << ": " << receipt.text << '\n';
    return;
  }
  out << "receipt " << receipt.kind << ": backend " << text_at(root, "/backend");
  const std::string against = text_at(root, "/against_payload_xxh3");
  if (against != "-") out << ", against payload " << against;
  int64_t kept = 0;
  if (root.at_pointer("/experts_kept").get(kept) == simdjson::SUCCESS) {
    out << ", " << grouped(kept) << " experts";
  }
  out << "\n  experts      text               perplexity          KL [95 %], nats  KL p99  flipped "
         "%"
         "  missing %  present %\n";
  print_texts(root, "this pack", out);
  dom::array beside;
  if (root.at_pointer("/beside").get(beside) != simdjson::SUCCESS) return;
  for (const dom::element each : beside) print_texts(each, "by " + text_at(each, "/score"), out);
}

}  // namespace k3
