// `k3c attach`: binds a measured quality result to the pack it was measured on.
#pragma once

#include <string>

namespace k3 {

// Adds the receipt file `receipt` (JSON, written by k3exec) to the index of `pack`, in place: the
// payload and its hash stay as they are. A receipt that is there already is not added again. Drops
// the tail that an interrupted attach left. Throws Error for a receipt that is malformed or belongs
// to another pack; then the pack is unchanged. Says on stdout how many receipts the pack has, as a
// line or as JSON.
void run_attach(const std::string& pack, const std::string& receipt, bool json = false);

}  // namespace k3
