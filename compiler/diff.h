// `k3c diff`: in what two packs differ, item by item, from their indexes alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "schema/pack_reader.h"

namespace k3 {

// One thing that is not the same in both packs; a side is empty where that pack has nothing.
struct Difference {
  std::string subject;  // "tensor lm_head.weight", "bank of layer 3", "config", "option trunk"
  std::string what;     // "format", "bytes", "kept experts", ...; empty: the subject itself
  std::optional<std::string> a;
  std::optional<std::string> b;
};

// All differences, in the order config, tensors, banks, side files, provenance, receipts. Where an
// expert's or tensor's bytes lie in the file is no difference. Throws Error for a damaged report.
std::vector<Difference> find_differences(const PackReader& a, const PackReader& b);

struct DiffRequest {
  std::string a;
  std::string b;
  bool json = false;
};

// Prints to stdout; returns whether the payloads are the same: such packs give the same output,
// whatever else differs. Throws Error for a pack that a reader refuses.
bool run_diff(const DiffRequest& request);

}  // namespace k3
