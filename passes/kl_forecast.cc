// Errors of single matrices add neither fully nor at a fixed discount. Near zero most of a KL is
// the flip of some routing decision that hung by a thread, which happens once whether one matrix
// moved or eighty did: on nano, int8 everywhere costs a third of its sum. Large errors meet and
// feed each other, and the ratio nears one. So the ratio is a function of how much harm there is,
// and each whole-trunk swap is a measured point of it: between those points log KL goes straight
// over log sum, beyond the ends the ratio stays what it was there.
#include "passes/kl_forecast.h"

#include <algorithm>
#include <cmath>

namespace k3 {

KlForecast::KlForecast(const Sensitivity& sensitivity) {
  for (const JointSwap& swap : sensitivity.whole) {
    if (swap.single_kl > 0 && swap.kl > 0) points_.push_back({swap.single_kl, swap.kl});
  }
  std::sort(points_.begin(), points_.end(),
            [](const Point& a, const Point& b) { return a.single_kl < b.single_kl; });
  // Where more harm measured less, the larger value stands for both.
  double largest = 0;
  for (Point& point : points_) largest = point.kl = std::max(point.kl, largest);
}

double KlForecast::at(double single_kl) const {
  if (!(single_kl > 0)) return 0;
  if (points_.empty()) return single_kl;
  const auto next = std::find_if(points_.begin(), points_.end(), [single_kl](const Point& point) {
    return single_kl < point.single_kl;
  });
  if (next == points_.begin()) return single_kl * next->kl / next->single_kl;
  const Point& low = *(next - 1);
  if (next == points_.end()) return single_kl * low.kl / low.single_kl;
  const double share =
      std::log(single_kl / low.single_kl) / std::log(next->single_kl / low.single_kl);
  return low.kl * std::pow(next->kl / low.kl, share);
}

}  // namespace k3
