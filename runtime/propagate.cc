#include "runtime/propagate.h"

#include <algorithm>

#include "runtime/comparable_packs.h"
#include "runtime/growth_report.h"
#include "runtime/loaded_model.h"
#include "runtime/text_input.h"
#include "schema/line_chart.h"

namespace k3 {
namespace {

// The texts' documents in turn, cut to the asked length, until there are enough tokens.
std::vector<std::vector<int32_t>> choose_documents(const PropagateOptions& options,
                                                   const PackReader& pack) {
  const Tokenizer tokenizer = load_tokenizer(pack);
  std::vector<std::vector<int32_t>> chosen;
  int64_t left = options.tokens;
  for (const std::string& path : options.text_paths) {
    for (std::vector<int32_t>& ids : tokenize_documents(read_text(path), tokenizer)) {
      for (size_t begin = 0; begin < ids.size() && left > 0;) {
        const size_t length =
            std::min({ids.size() - begin, static_cast<size_t>(options.document_tokens),
                      static_cast<size_t>(left)});
        chosen.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                            ids.begin() + static_cast<std::ptrdiff_t>(begin + length));
        begin += length;
        left -= static_cast<int64_t>(length);
      }
    }
  }
  return chosen;
}

}  // namespace

void propagate(const PropagateOptions& options, std::ostream& out, std::ostream& progress) {
  LayerwiseModel compressed(options.pack_path, options.backend, options.document_tokens,
                            options.verify);
  LayerwiseModel original(options.against_path, options.backend, options.document_tokens,
                          options.verify);
  check_comparable(compressed.pack(), original.pack());
  check_same_basis(compressed.pack(), original.pack());
  const std::vector<std::vector<int32_t>> documents = choose_documents(options, original.pack());
  const ErrorGrowth growth =
      measure_error_growth(original, compressed, documents, options.growth, [&](int64_t layer) {
        if (!options.quiet) {
          progress << "layer " << layer + 1 << " of " << original.layers() << '\n';
        }
      });
  if (!options.svg_path.empty()) write_chart(options.svg_path, growth_chart(growth));
  if (options.json) {
    write_growth(growth, original.config(), out);
  } else {
    print_growth(growth, original.config(), out);
  }
}

}  // namespace k3
