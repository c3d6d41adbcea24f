// The choices that passes made, one line per tensor or bank and pass. They become a report in the
// pack, so that every format in it can be traced to a reason and a number.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace k3 {

struct Decision {
  std::string subject;      // a tensor's name, or "bank of layer 7"
  std::string_view pass;    // which pass chose
  std::string choice;       // what: "int8", "keep 64 of 64", ...
  std::string_view reason;  // why, in words
  double number = 0;        // the number behind it; which one, the reason says
};

using Decisions = std::vector<Decision>;

// A header line, then a line per decision, fields separated by tabs; numbers in the shortest form
// that reads back to the same double.
std::string format_decisions(const Decisions& decisions);

}  // namespace k3
