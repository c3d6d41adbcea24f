#include "passes/decisions.h"

#include <array>
#include <charconv>

namespace k3 {

std::string format_decisions(const Decisions& decisions) {
  std::string text = "subject\tpass\tchoice\treason\tnumber\n";
  for (const Decision& decision : decisions) {
    std::array<char, 32> number{};
    const auto end = std::to_chars(number.data(), number.data() + number.size(), decision.number);
    text += decision.subject;
    text += '\t';
    text += decision.pass;
    text += '\t';
    text += decision.choice;
    text += '\t';
    text += decision.reason;
    text += '\t';
    text.append(number.data(), end.ptr);
    text += '\n';
  }
  return text;
}

}  // namespace k3
