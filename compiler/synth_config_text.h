// The text of the released config.json files, with a $name where a preset has its own number.
//
// Most of the release's fields are defaults that its library wrote along and that nothing reads.
// They are kept because a reader of configs should meet the real thing: all of it, in its order.
//
// A line that starts with '?' is for models with a vision part only, one that starts with '!' for
// models without; the mark is not part of the line. The line breaks at both ends are not either.
#pragma once

#include <string_view>

namespace k3 {

std::string_view kimi_k3_config_text();
std::string_view kimi_linear_config_text();

}  // namespace k3
