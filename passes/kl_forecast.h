// The KL of a trunk with many matrices swapped, predicted from what each costs alone.
#pragma once

#include <vector>

#include "schema/sensitivity.h"

namespace k3 {

class KlForecast {
 public:
  // From the whole-trunk swaps, which are known both one by one and together.
  explicit KlForecast(const Sensitivity& sensitivity);

  // Of matrices whose single KLs add up to `single_kl`. Rises with it; 0 at 0.
  double at(double single_kl) const;

 private:
  struct Point {
    double single_kl, kl;
  };
  std::vector<Point> points_;  // both positive, ascending
};

}  // namespace k3
