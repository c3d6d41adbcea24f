#include "runtime/text_input.h"

#include <simdjson.h>

#include <filesystem>
#include <string_view>

#include "schema/error.h"
#include "schema/file.h"
#include "schema/hash.h"

namespace k3 {
namespace {

constexpr int64_t kLargestTextBytes = int64_t{1} << 32;

std::string document_of_line(simdjson::dom::parser& parser, std::string_view line,
                             const std::string& path, int64_t line_number) {
  std::string_view text;
  const auto error = parser.parse(line.data(), line.size(), true)["text"].get_string().get(text);
  if (error != simdjson::SUCCESS) {
    throw Error(path, ": line ", line_number, ": ", simdjson::error_message(error),
                " (expected a JSON object with the document as a string in \"text\")");
  }
  return std::string(text);
}

}  // namespace

TextFile read_text(const std::string& path) {
  const std::vector<std::byte> bytes = read_whole_file(path, kLargestTextBytes);
  const std::string_view content(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::filesystem::path file(path);
  TextFile text{.name = file.stem().string(), .xxh3 = xxh3(bytes), .documents = {}};
  if (file.extension() != ".jsonl") {
    if (!content.empty()) text.documents.emplace_back(content);
  } else {
    simdjson::dom::parser parser;
    int64_t line_number = 0;
    for (size_t begin = 0; begin < content.size();) {
      const size_t end = std::min(content.find('\n', begin), content.size());
      const std::string_view line = content.substr(begin, end - begin);
      ++line_number;
      if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
        text.documents.push_back(document_of_line(parser, line, path, line_number));
      }
      begin = end + 1;
    }
  }
  if (text.documents.empty()) throw Error(path, ": holds no text");
  return text;
}

std::vector<std::vector<int32_t>> tokenize_documents(const TextFile& file,
                                                     const Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> documents;
  for (const std::string& document : file.documents) {
    std::vector<int32_t>& ids = documents.emplace_back();
    if (tokenizer.adds_bos()) ids.push_back(tokenizer.bos_id());
    const std::vector<int32_t> encoded = tokenizer.encode(document);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
  }
  return documents;
}

}  // namespace k3
