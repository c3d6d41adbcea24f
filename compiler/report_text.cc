#include "compiler/report_text.h"

#include <algorithm>

#include "schema/error.h"
#include "schema/printable.h"

namespace k3 {

std::string report_text(const PackReader& pack, std::string_view name) {
  const std::vector<std::byte> bytes = pack.report(name);
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto bad = std::find_if(text.begin(), text.end(),
                                [](char c) { return is_control(c) && c != '\n' && c != '\t'; });
  if (bad == text.end()) return text;
  throw Error(pack.path(), ": report ", name, ": byte ", bad - text.begin(),
              " is control character ", static_cast<int>(*bad), ", expected text");
}

}  // namespace k3
