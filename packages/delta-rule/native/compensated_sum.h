// Sums of f32 to twice its digits, for CPUs and GPUs.
#pragma once

namespace mlxts {

// high + low is the sum; low collects what each addition to high rounds away.
template <typename V>
struct CompensatedSum {
  V high, low;

  void add(V x) {
    const V sum = high + x, back = sum - high;
    low += (high - (sum - back)) + (x - back);
    high = sum;
  }
};

}  // namespace mlxts
