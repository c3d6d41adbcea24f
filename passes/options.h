// Every knob of the passes, one sub-struct per pass, each default with its reason.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "schema/format.h"

namespace k3 {

// What becomes of a matrix that may be quantized.
enum class Precision : uint8_t {
  kSource,  // f32 or bf16 as in the checkpoint; the flag calls it bf16, which it is in every
            // release
  kInt8,
  // By rounding, without training: the formats for a trunk that must be small.
  kTernary,
  kTernary2,
};

struct TernaryTrunkOptions {
  // The source's precision, because a compiler that was told nothing must lose nothing.
  Precision trunk = Precision::kSource;
  // Apart from the trunk: the head sees every logit, and K3's is 2 % of the trunk's bytes. So the
  // command line offers it no ternary format.
  Precision head = Precision::kSource;
};

struct Options {
  TernaryTrunkOptions ternary_trunk;
};

// The options that decide bytes, as the pack records them: names and values in a fixed order.
std::vector<std::pair<std::string, std::string>> canonical_options(const Options& options);

// The name of a Precision on the command line and in a pack.
std::string precision_name(Precision precision);

}  // namespace k3
