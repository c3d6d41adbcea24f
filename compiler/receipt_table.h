// Receipts as people read them.
#pragma once

#include <ostream>

#include "schema/pack_index.h"

namespace k3 {

// A row for each text that the pack was measured on and, below, for each other choice of experts
// that was measured beside it. What a receipt does not say is "-"; one that is not an object of
// k3exec eval is printed as it is.
void print_receipt(const PackReceipt& receipt, std::ostream& out);

}  // namespace k3
