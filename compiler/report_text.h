// A report of a pack as text that is fit for a terminal.
#pragma once

#include <string>
#include <string_view>

#include "schema/pack_reader.h"

namespace k3 {

// Throws Error when the pack lacks the report `name`, when it is damaged, and when it holds a
// control character other than those between its lines and fields: whoever wrote it chose it, and
// it will stand in messages and on terminals.
std::string report_text(const PackReader& pack, std::string_view name);

}  // namespace k3
