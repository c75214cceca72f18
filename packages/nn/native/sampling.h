// The integer arithmetic of sampling, the same on every device, so that ids do not depend on the device.
#pragma once
#include "portable.h"

namespace mlxts {

// r in [0, 2^64), uniformly distributed: two words of Philox4x32-10 with counter (step, row, 0, 0) and key (seed, 0).
MLXTS_FUNC uint64_t random_bits(uint32_t seed, uint32_t step, uint32_t row) {
  uint32_t counter[4] = {step, row, 0, 0}, key[2] = {seed, 0};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t(counter[0]) * 0xD2511F53, b = uint64_t(counter[2]) * 0xCD9E8D57;
    counter[0] = uint32_t(b >> 32) ^ counter[1] ^ key[0];
    counter[2] = uint32_t(a >> 32) ^ counter[3] ^ key[1];
    counter[1] = uint32_t(b);
    counter[3] = uint32_t(a);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return uint64_t(counter[1]) << 32 | counter[0];
}

// ceil(total · share / 2^32): the least sum of weights that has the share.
MLXTS_FUNC uint64_t sum_with_share(uint64_t total, uint32_t share) {
  const uint64_t low = total & 0xffffffff;
  return (total >> 32) * share + ((low * share + 0xffffffff) >> 32);
}

// floor(r · total / 2^64): the drawn id is the first whose running sum of weights exceeds it.
MLXTS_FUNC uint64_t drawn_sum(uint64_t r, uint64_t total) {
  const uint64_t r0 = r & 0xffffffff, r1 = r >> 32, t0 = total & 0xffffffff, t1 = total >> 32;
  const uint64_t middle = r1 * t0 + (r0 * t0 >> 32), other = r0 * t1 + (middle & 0xffffffff);
  return r1 * t1 + (middle >> 32) + (other >> 32);
}

}  // namespace mlxts
