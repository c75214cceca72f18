// Products of warpgroups, for cuda_machine.h. They happen as late as they may, when a thread waits for them: until then
// what a product gives is not there, and what it takes must stay. A warp has rows of its own, so each counts for
// itself.
#pragma once

namespace machine {

METAL_SIM_INLINE ulong warpgroup_operand(const void* b) {
  return ulong(threadgroup_address(b) >> 4) | 1ul << 16 | 64ul << 32 | 1ul << 62;
}
METAL_SIM_INLINE ulong warpgroup_rows(const void* b, uint next) {
  return ulong(threadgroup_address(b) >> 4) | ulong(next >> 4) << 16 | 64ul << 32 | 1ul << 62;
}
template <typename T>
METAL_SIM_INLINE void held(const T&) {}
template <uint Count>
METAL_SIM_INLINE void settled(const uint (&)[Count][4], const void*, bool) {}
/** All simdgroups of a warpgroup execute each of its instructions, which is seen where all threads meet. */
METAL_SIM_INLINE void warpgroup_step(uint line) {
  const metal_sim::Thread& self = *metal_sim::current();
  if (self.thread_index_in_simdgroup == 0) self.exchange->warpgroup_steps = self.exchange->warpgroup_steps * 31 + line;
}
METAL_SIM_INLINE void warpgroup_begin(METAL_SIM_HERE) { warpgroup_step(line); }
METAL_SIM_INLINE void warpgroup_end(METAL_SIM_HERE) {
  warpgroup_step(line);
  ++metal_sim::current()->product_groups;
}
METAL_SIM_INLINE void warpgroup_operands_written() { metal_sim::current()->unfenced = 0; }
template <uint Threads>
METAL_SIM_INLINE void parts_meet(METAL_SIM_HERE) {
  metal_sim::Thread& self = *metal_sim::current();
  // The next meeting's may be there before this one's are compared.
  const uint turn = self.meetings++ % 2;
  if (self.thread_index_in_simdgroup == 0) self.exchange->warpgroup_steps_met[turn] = self.exchange->warpgroup_steps;
  threadgroup_barrier(file, line);
  const metal_sim::Exchange& first = self.exchange[-int(self.simdgroup_index_in_threadgroup % 4)];
  if (self.exchange->warpgroup_steps_met[turn] != first.warpgroup_steps_met[turn])
    self.host->undefined(metal_sim::Undefined::kWarpgroup, {file, line, "parts_meet"}, 0);
}
template <uint Count>
METAL_SIM_INLINE void fewer_registers() {}
template <uint Count>
METAL_SIM_INLINE void more_registers() {}

/**
 * Element k of column n of an operand, or of row n of a left one, as the swizzle of its address says; `rows`: of one of
 * warpgroup_rows.
 */
METAL_SIM_INLINE float operand_element(ulong operand, uint n, uint k, bool rows) {
  const uint begin = uint(operand & 0x3fff) << 4, eight = uint(operand >> 32 & 0x3fff) << 4;
  const uint half = uint(operand >> 16 & 0x3fff) << 4;
  const uint of_rows = n / 64 * half + k / 8 * eight + k % 8 * 128 + n % 64 * 2;
  uint at = begin + (rows ? of_rows : n / 8 * eight + n % 8 * 128 + k * 2);
  at ^= (at >> 7 & 7) << 4;
  return of_bf16(*(const ushort*)((const uchar*)threadgroup_memory() + at));
}

struct LeftOperand {
  uint of[4];
};
/** One product of this warp's rows; where a thread's copies were not made visible before a barrier, not a number. */
METAL_SIM_INLINE void finish(const metal_sim::PendingProduct& product, const char* file, uint line) {
  LeftOperand own;
  for (uint i = 0; i < 4; ++i) own.of[i] = product.registers ? ((const uint*)product.a)[i] : 0;
  const auto lanes = all_lanes(own, file, line, "warpgroup_wait");
  const metal_sim::Thread& self = *metal_sim::current();
  const uint row = self.simdgroup_index_in_threadgroup % 4 * 16 + lanes.lane / 4;
  const bool seen = self.exchange[-int(self.simdgroup_index_in_threadgroup)].unfenced == 0;
  double a[2][16];
  for (uint k = 0; k < 16; ++k)
    for (uint r = 0; r < 2; ++r)
      a[r][k] = product.registers
                    ? element<Kind::kBf16>(lanes(lanes.lane / 4 * 4 + k % 8 / 2).of[k / 8 * 2 + r], k)
                    : operand_element(product.a, row + 8 * r, k, false);
  for (uint n = 0; n < 8u * product.blocks; n += 8)
    for (uint e = 0; e < 2; ++e) {
      const uint column = n + lanes.lane % 4 * 2 + e;
      float* const d = product.d + n / 2 + e;
      double sums[2] = {product.add ? d[0] : 0.0, product.add ? d[2] : 0.0};
      for (uint k = 0; k < 16; ++k) {
        const double b = operand_element(product.b, column, k, product.rows);
        for (uint r = 0; r < 2; ++r) sums[r] += a[r][k] * b;
      }
      for (uint r = 0; r < 2; ++r) d[2 * r] = seen ? cut_off(sums[r]) : __builtin_nanf("");
    }
}
METAL_SIM_INLINE void start_product(float* d, ulong a, bool registers, ulong b, uint blocks, bool add, bool rows,
                                    const char* file, uint line) {
  warpgroup_step(line);
  metal_sim::Thread& self = *metal_sim::current();
  if (self.product_count == metal_sim::kMaxProducts) {
    self.host->undefined(metal_sim::Undefined::kIndex, {file, line, "warpgroup_bf16_k16"}, self.product_count);
    return;
  }
  self.products[self.product_count++] = {d, a, b, self.product_groups, uint8_t(blocks), add, registers, rows};
  if (!add)
    for (uint i = 0; i < 4 * blocks; ++i) d[i] = __builtin_nanf("");
}
template <uint Blocks>
METAL_SIM_INLINE void warpgroup_bf16_k16(float (&d)[Blocks][4], const uint (&a)[4], ulong b, bool add, METAL_SIM_HERE) {
  start_product(&d[0][0], (ulong)a, true, b, Blocks, add, false, file, line);
}
METAL_SIM_INLINE void warpgroup_bf16_k16(float (&d)[4], ulong a, ulong b, bool add, METAL_SIM_HERE) {
  start_product(d, a, false, b, 1, add, false, file, line);
}
template <uint Blocks>
METAL_SIM_INLINE void warpgroup_bf16_k16(float (&d)[Blocks][4], ulong a, ulong b, bool add, METAL_SIM_HERE) {
  start_product(&d[0][0], a, false, b, Blocks, add, false, file, line);
}
METAL_SIM_INLINE void warpgroup_bf16_k16_rows(float (&d)[16][4], const uint (&a)[4], ulong b, METAL_SIM_HERE) {
  start_product(&d[0][0], (ulong)a, true, b, 16, true, true, file, line);
}
template <uint Later>
METAL_SIM_INLINE void warpgroup_wait(METAL_SIM_HERE) {
  warpgroup_step(line);
  metal_sim::Thread& self = *metal_sim::current();
  uint kept = 0;
  for (uint i = 0; i < self.product_count; ++i) {
    const metal_sim::PendingProduct product = self.products[i];
    if (product.group + Later < self.product_groups)
      finish(product, file, line);
    else
      self.products[kept++] = product;
  }
  self.product_count = kept;
}

}  // namespace machine
