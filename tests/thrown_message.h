// What an Error says, for tests that state which fault must be found.
#pragma once

#include <string>

#include "schema/error.h"

namespace k3 {

// The message of the Error that `action` throws; "no error" when it throws none.
template <class Action>
std::string thrown_message(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace k3
