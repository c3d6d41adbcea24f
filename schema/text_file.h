// Small results as text: receipts and sensitivities.
#pragma once

#include <string>
#include <string_view>

namespace k3 {

// Writes `text` to a neighbour of `path` and renames it into place. Throws Error; then an older
// file of that name is untouched.
void write_text_file(const std::string& path, std::string_view text);

}  // namespace k3
