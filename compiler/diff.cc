// Equal hashes mean equal bytes, so nothing but the two indexes and their lists of source hashes is
// read: two packs of a terabyte are compared in a second. Every difference has one form, so text
// and JSON show the same list.
#include "compiler/diff.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

#include "compiler/config_fields.h"
#include "compiler/pack_history.h"
#include "compiler/quantities.h"
#include "compiler/report.h"
#include "passes/pass_results.h"
#include "schema/error.h"
#include "schema/hash.h"
#include "schema/json_writer.h"

namespace k3 {
namespace {

std::string shape_text(const Shape& shape) {
  std::ostringstream text;
  text << shape;
  return std::move(text).str();
}

// "0-3, 7, 9": ascending numbers as ranges.
std::string ranges_text(const std::vector<uint32_t>& numbers) {
  std::string text;
  for (size_t first = 0; first < numbers.size();) {
    size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(numbers[first]);
    if (last > first) text.append(1, '-').append(std::to_string(numbers[last]));
    first = last + 1;
  }
  return text;
}

std::optional<SourceHashes> source_hashes(const PackReader& pack) {
  const auto& reports = pack.index().provenance.reports;
  const bool listed = std::any_of(reports.begin(), reports.end(), [](const PackReport& report) {
    return report.name == kSourceHashesReport;
  });
  if (!listed) return std::nullopt;
  return SourceHashes(pack);
}

class Comparison {
 public:
  Comparison(const PackReader& a, const PackReader& b)
      : a_(a), b_(b), source_hashes_a_(source_hashes(a)), source_hashes_b_(source_hashes(b)) {}

  std::vector<Difference> run() {
    compare_config();
    compare_tensors();
    compare_banks();
    compare_side_files();
    compare_provenance();
    compare_receipts();
    return std::move(found_);
  }

 private:
  // Notes the two texts unless they are equal.
  void note(const std::string& subject, const char* what, const std::string& a,
            const std::string& b) {
    if (a != b) found_.push_back({subject, what, a, b});
  }
  void only_in_a(const std::string& subject, const std::string& what) {
    found_.push_back({subject, "", what, std::nullopt});
  }
  void only_in_b(const std::string& subject, const std::string& what) {
    found_.push_back({subject, "", std::nullopt, what});
  }

  // Pairs two lists by key, in the order of A and then of what only B has.
  template <class Item, class Key, class Both, class Describe>
  void pair_up(const std::vector<Item>& a, const std::vector<Item>& b, const Key& key_of,
               const Both& both, const Describe& describe, const std::string& kind) {
    std::map<std::string, const Item*> in_b;
    for (const Item& item : b) in_b.emplace(key_of(item), &item);
    for (const Item& item : a) {
      const auto found = in_b.find(key_of(item));
      if (found == in_b.end()) {
        only_in_a(kind + key_of(item), describe(item));
        continue;
      }
      both(item, *found->second);
      in_b.erase(found);
    }
    for (const Item& item : b) {
      if (in_b.contains(key_of(item))) only_in_b(kind + key_of(item), describe(item));
    }
  }

  void compare_config() {
    const auto a = config_fields(a_.config());
    const auto b = config_fields(b_.config());
    const size_t before = found_.size();
    for (size_t i = 0; i < a.size(); ++i) {
      note("config", std::string(a[i].first).c_str(), a[i].second, b[i].second);
    }
    K3_CHECK((a_.config() == b_.config()) == (found_.size() == before));
  }

  void compare_tensors() {
    const auto& a = a_.index().content.tensors;
    const auto& b = b_.index().content.tensors;
    const auto both = [&](const PackTensor& one, const PackTensor& other) {
      const std::string subject = "tensor " + one.name;
      note(subject, "shape", shape_text(one.shape), shape_text(other.shape));
      note(subject, "family", std::string(family_name(one.family)),
           std::string(family_name(other.family)));
      note(subject, "format", std::string(format_name(one.format)),
           std::string(format_name(other.format)));
      note(subject, "layout", std::string(layout_name(one.layout)),
           std::string(layout_name(other.layout)));
      note(subject, "stored bytes", grouped(one.extent.length_bytes),
           grouped(other.extent.length_bytes));
      note(subject, "hash", hex_digits(one.extent.xxh3), hex_digits(other.extent.xxh3));
      if (!source_hashes_a_ || !source_hashes_b_) return;
      note(subject, "source hash",
           hex_digits(source_hashes_a_->of_tensor(static_cast<size_t>(&one - a.data()))),
           hex_digits(source_hashes_b_->of_tensor(static_cast<size_t>(&other - b.data()))));
    };
    pair_up(
        a, b, [](const PackTensor& tensor) { return tensor.name; }, both,
        [](const PackTensor& tensor) {
          return std::string(format_name(tensor.format)) + " " + shape_text(tensor.shape) + ", " +
                 grouped(tensor.extent.length_bytes) + " bytes";
        },
        "tensor ");
  }

  void compare_banks() {
    pair_up(
        a_.index().content.banks, b_.index().content.banks,
        [](const PackBank& bank) { return std::to_string(bank.layer); },
        [&](const PackBank& a, const PackBank& b) { compare_bank(a, b); },
        [](const PackBank& bank) { return std::to_string(bank.experts.size()) + " experts"; },
        "bank of layer ");
  }

  void compare_bank(const PackBank& a, const PackBank& b) {
    const std::string subject = "bank of layer " + std::to_string(a.layer);
    note(subject, "format", std::string(format_name(a.format)), std::string(format_name(b.format)));
    note(subject, "layout", std::string(layout_name(a.layout)), std::string(layout_name(b.layout)));
    note(subject, "fixed point", std::to_string(a.fixed_point), std::to_string(b.fixed_point));
    note(subject, "source experts", grouped(a.source_experts), grouped(b.source_experts));
    note(subject, "kept experts", grouped(std::ssize(a.experts)), grouped(std::ssize(b.experts)));
    note(subject, "experts not cold", grouped(std::ssize(hot_experts(a))),
         grouped(std::ssize(hot_experts(b))));

    std::map<uint32_t, size_t> in_b;
    for (size_t i = 0; i < b.experts.size(); ++i) in_b.emplace(b.experts[i].source_id, i);
    const auto first_a = source_index(a_, a);
    const auto first_b = source_index(b_, b);
    std::vector<uint32_t> only_a;
    std::vector<uint32_t> other_bytes;
    std::vector<uint32_t> other_sources;
    std::vector<size_t> order;  // positions in B of the experts of both, in A's order
    for (size_t i = 0; i < a.experts.size(); ++i) {
      const PackExpert& expert = a.experts[i];
      const auto found = in_b.find(expert.source_id);
      if (found == in_b.end()) {
        only_a.push_back(expert.source_id);
        continue;
      }
      const size_t j = found->second;
      order.push_back(j);
      in_b.erase(found);
      if (expert.extent.xxh3 != b.experts[j].extent.xxh3) other_bytes.push_back(expert.source_id);
      if (source_hashes_a_ && source_hashes_b_ &&
          source_hashes_a_->of_expert(first_a, i) != source_hashes_b_->of_expert(first_b, j)) {
        other_sources.push_back(expert.source_id);
      }
    }
    std::vector<uint32_t> only_b;
    for (const auto& entry : in_b) only_b.push_back(entry.first);
    note_experts(subject, "experts only in A", only_a, true, false);
    note_experts(subject, "experts only in B", only_b, false, true);
    if (!std::is_sorted(order.begin(), order.end())) {
      found_.push_back({subject, "order of experts", "one", "another"});
    }
    note_experts(subject, "experts with other bytes", other_bytes, true, true);
    note_experts(subject, "experts from other source bytes", other_sources, true, true);
  }

  static size_t source_index(const PackReader& pack, const PackBank& bank) {
    return static_cast<size_t>(&bank - pack.index().content.banks.data());
  }

  void note_experts(const std::string& subject, const char* what, std::vector<uint32_t> ids,
                    bool in_a, bool in_b) {
    if (ids.empty()) return;
    std::sort(ids.begin(), ids.end());
    const std::string text = ranges_text(ids);
    found_.push_back({subject, what, in_a ? std::optional(text) : std::nullopt,
                      in_b ? std::optional(text) : std::nullopt});
  }

  void compare_side_files() {
    const auto both = [&](const PackSideFile& a, const PackSideFile& b) {
      const std::string subject = "side file " + a.name;
      note(subject, "bytes", grouped(a.raw_bytes), grouped(b.raw_bytes));
      note(subject, "hash", hex_digits(a.extent.xxh3), hex_digits(b.extent.xxh3));
    };
    pair_up(
        a_.index().content.side_files, b_.index().content.side_files,
        [](const PackSideFile& file) { return file.name; }, both,
        [](const PackSideFile& file) { return grouped(file.raw_bytes) + " bytes"; }, "side file ");
  }

  void compare_provenance() {
    using Option = std::pair<std::string, std::string>;
    const PackProvenance& a = a_.index().provenance;
    const PackProvenance& b = b_.index().provenance;
    note("provenance", "compiler", a.compiler, b.compiler);
    pair_up(
        a.options, b.options, [](const Option& option) { return option.first; },
        [&](const Option& one, const Option& other) {
          note("option " + one.first, "value", one.second, other.second);
        },
        [](const Option& option) { return option.second; }, "option ");
    using Number = std::pair<std::string, double>;
    pair_up(
        a.passes, b.passes, [](const PassRecord& pass) { return pass.name; },
        [&](const PassRecord& one, const PassRecord& other) {
          const std::string subject = "pass " + one.name;
          pair_up(
              one.numbers, other.numbers, [](const Number& number) { return number.first; },
              [&](const Number& x, const Number& y) {
                note(subject, x.first.c_str(), shortest(x.second), shortest(y.second));
              },
              [](const Number& number) { return shortest(number.second); }, subject + ": ");
        },
        [](const PassRecord& pass) { return std::to_string(pass.numbers.size()) + " numbers"; },
        "pass ");
  }

  // Receipts are compared as a set: in what order they were attached says nothing.
  void compare_receipts() {
    const auto missing = [](const PackReceipt& receipt, const std::vector<PackReceipt>& others) {
      return std::none_of(others.begin(), others.end(), [&](const PackReceipt& other) {
        return other.kind == receipt.kind && other.text == receipt.text;
      });
    };
    for (const PackReceipt& receipt : a_.index().receipts) {
      if (missing(receipt, b_.index().receipts)) only_in_a("receipt", receipt.text);
    }
    for (const PackReceipt& receipt : b_.index().receipts) {
      if (missing(receipt, a_.index().receipts)) only_in_b("receipt", receipt.text);
    }
  }

  const PackReader& a_;
  const PackReader& b_;
  std::optional<SourceHashes> source_hashes_a_;
  std::optional<SourceHashes> source_hashes_b_;
  std::vector<Difference> found_;
};

std::string one_line(const std::string& text) {
  std::string line = text;
  while (!line.empty() && line.back() == '\n') line.pop_back();
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

void print_text(const PackReader& a, const PackReader& b, const std::vector<Difference>& found) {
  for (const Difference& one : found) {
    std::cout << one.subject << ": ";
    if (!one.what.empty()) {
      std::cout << one.what << ": ";
      if (one.a && one.b && *one.a == *one.b) {
        std::cout << *one.a << '\n';
        continue;
      }
    }
    std::cout << (one.a ? one_line(*one.a) : "-") << " | " << (one.b ? one_line(*one.b) : "-")
              << '\n';
  }
  const std::string hash_a = hex_digits(a.payload_xxh3());
  const std::string hash_b = hex_digits(b.payload_xxh3());
  std::cout << a.path() << " | " << b.path() << ": ";
  if (hash_a == hash_b) {
    std::cout << "same payload " << hash_a;
  } else {
    std::cout << "payload " << hash_a << " | " << hash_b;
  }
  std::cout << ", " << grouped(std::ssize(found)) << " differences, " << grouped(a.file_bytes())
            << " | " << grouped(b.file_bytes()) << " bytes\n";
}

void write_side(JsonWriter& json, const char* name, const std::optional<std::string>& side) {
  json.key(name);
  side ? json.value(*side) : json.null();
}

void print_json(const PackReader& a, const PackReader& b, const std::vector<Difference>& found) {
  JsonWriter json(std::cout, 2);
  json.begin_object();
  json.member("same_payload", a.payload_xxh3() == b.payload_xxh3());
  for (const auto& [key, pack] : {std::pair{"a", &a}, std::pair{"b", &b}}) {
    json.key(key);
    json.begin_object();
    json.member("pack", pack->path());
    json.member("file_bytes", pack->file_bytes());
    json.member("payload_xxh3", hex_digits(pack->payload_xxh3()));
    json.end_object();
  }
  json.key("differences");
  json.begin_array();
  for (const Difference& one : found) {
    json.begin_object();
    json.member("subject", one.subject);
    if (!one.what.empty()) json.member("what", one.what);
    write_side(json, "a", one.a);
    write_side(json, "b", one.b);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  std::cout << '\n';
}

}  // namespace

std::vector<Difference> find_differences(const PackReader& a, const PackReader& b) {
  return Comparison(a, b).run();
}

bool run_diff(const DiffRequest& request) {
  const PackReader a(request.a);
  const PackReader b(request.b);
  const std::vector<Difference> found = find_differences(a, b);
  request.json ? print_json(a, b, found) : print_text(a, b, found);
  return a.payload_xxh3() == b.payload_xxh3();
}

}  // namespace k3
