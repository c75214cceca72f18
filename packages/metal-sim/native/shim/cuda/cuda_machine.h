// The functions of core's cuda_machine.h on the simulator's engine, so that a CUDA translation runs without a GPU. A
// warp's functions have full masks: a lane that takes no part is reported.
#pragma once
#include "kernel.h"

#define MLXTS_CUDA_FUNC METAL_SIM_INLINE
#define MLXTS_CUDA_ENTRY(threads) __attribute__((nodebug)) inline void
#define MLXTS_CUDA_PARAM const

namespace machine {

constexpr uint kLanes = 0xffffffffu;

struct Axes {
  uint x, y, z;
};
METAL_SIM_INLINE Axes axes(const uint32_t (&at)[3]) { return {at[0], at[1], at[2]}; }
METAL_SIM_INLINE Axes threadgroup() { return axes(metal_sim::current()->threadgroup_position_in_grid); }
METAL_SIM_INLINE Axes threadgroups() { return axes(metal_sim::current()->threadgroups_per_grid); }
METAL_SIM_INLINE Axes thread() { return axes(metal_sim::current()->thread_position_in_threadgroup); }
METAL_SIM_INLINE Axes threads() { return axes(metal_sim::current()->threads_per_threadgroup); }
METAL_SIM_INLINE void* threadgroup_memory() { return metal_sim::current()->arguments->threadgroup[0]; }
METAL_SIM_INLINE uint threadgroup_address(const void* at) {
  return uint((const uchar*)at - (const uchar*)threadgroup_memory());
}
METAL_SIM_INLINE uint lane() { return metal_sim::current()->thread_index_in_simdgroup; }

template <typename To, typename From>
METAL_SIM_INLINE To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
METAL_SIM_INLINE uint clz(uint x) { return metal::clz(x); }
METAL_SIM_INLINE uint ctz(uint x) { return metal::ctz(x); }
METAL_SIM_INLINE uint popcount(uint x) { return metal::popcount(x); }
METAL_SIM_INLINE uint reverse_bits(uint x) { return metal::reverse_bits(x); }
METAL_SIM_INLINE uint mulhi(uint a, uint b) { return metal::mulhi(a, b); }
METAL_SIM_INLINE uint and_or(uint a, uint b, uint c) { return (a & b) | c; }
METAL_SIM_INLINE uint bytes_of(uint a, uint b, uint select) {
  const ulong both = ulong(b) << 32 | a;
  uint r = 0;
  for (uint i = 0; i < 4; ++i) r |= uint(both >> (select >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return r;
}

METAL_SIM_INLINE ushort f16_of(float x) { return bits<ushort>(half(x)); }
METAL_SIM_INLINE float of_f16(ushort x) { return float(bits<half>(x)); }
METAL_SIM_INLINE ushort bf16_of(float x) {
  const uint raw = bits<uint>(x);
  if ((raw & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return ushort((raw + 0x7fffu + (raw >> 16 & 1)) >> 16);
}
METAL_SIM_INLINE float of_bf16(ushort x) { return bits<float>(uint(x) << 16); }
METAL_SIM_INLINE uint f16_pair(float low, float high) { return uint(f16_of(high)) << 16 | f16_of(low); }
METAL_SIM_INLINE uint bf16_pair(float low, float high) { return uint(bf16_of(high)) << 16 | bf16_of(low); }
METAL_SIM_INLINE uint tf32_of(float x) {
  const uint raw = bits<uint>(x);
  return (raw & 0x7f800000u) == 0x7f800000u ? raw : (raw + 0x1000u) & 0xffffe000u;
}
#define METAL_SIM_F16(name, op)                                                                                   \
  METAL_SIM_INLINE ushort name(ushort a, ushort b) { return bits<ushort>(half(bits<half>(a) op bits<half>(b))); } \
  METAL_SIM_INLINE uint name##_pair(uint a, uint b) {                                                             \
    return uint(name(ushort(a >> 16), ushort(b >> 16))) << 16 | name(ushort(a), ushort(b));                       \
  }
METAL_SIM_F16(f16_add, +)
METAL_SIM_F16(f16_subtract, -)
METAL_SIM_F16(f16_multiply, *)
METAL_SIM_INLINE ushort f16_fma(ushort a, ushort b, ushort c) {
  return bits<ushort>(metal::fma(bits<half>(a), bits<half>(b), bits<half>(c)));
}
METAL_SIM_INLINE ushort bf16_fma(ushort a, ushort b, ushort c) {
  return bf16_of(float(__builtin_fma(double(of_bf16(a)), double(of_bf16(b)), double(of_bf16(c)))));
}
METAL_SIM_INLINE uint f16_fma_pair(uint a, uint b, uint c) {
  return uint(f16_fma(ushort(a >> 16), ushort(b >> 16), ushort(c >> 16))) << 16 |
         f16_fma(ushort(a), ushort(b), ushort(c));
}
METAL_SIM_INLINE uint bf16_fma_pair(uint a, uint b, uint c) {
  return uint(bf16_fma(ushort(a >> 16), ushort(b >> 16), ushort(c >> 16))) << 16 |
         bf16_fma(ushort(a), ushort(b), ushort(c));
}

METAL_SIM_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
METAL_SIM_INLINE float exp2_fast(float x) { return metal::exp2(x); }
METAL_SIM_INLINE float reciprocal_fast(float x) { return 1.0f / x; }
#define METAL_SIM_F32(name) \
  METAL_SIM_INLINE float name(float x) { return metal::name(x); }
METAL_SIM_F32(sqrt)
METAL_SIM_F32(rsqrt)
METAL_SIM_F32(exp)
METAL_SIM_F32(exp2)
METAL_SIM_F32(exp10)
METAL_SIM_F32(log)
METAL_SIM_F32(log2)
METAL_SIM_F32(log10)
METAL_SIM_F32(sin)
METAL_SIM_F32(cos)
METAL_SIM_F32(tan)
METAL_SIM_F32(tanh)
METAL_SIM_F32(round)
METAL_SIM_F32(rint)
METAL_SIM_F32(floor)
METAL_SIM_F32(ceil)
METAL_SIM_F32(trunc)
METAL_SIM_F32(fabs)
#define METAL_SIM_F32_OF_TWO(name) \
  METAL_SIM_INLINE float name(float x, float y) { return metal::name(x, y); }
METAL_SIM_F32_OF_TWO(pow)
METAL_SIM_F32_OF_TWO(fmod)
METAL_SIM_F32_OF_TWO(fmin)
METAL_SIM_F32_OF_TWO(fmax)
METAL_SIM_F32_OF_TWO(copysign)

METAL_SIM_INLINE void threadgroup_barrier(METAL_SIM_HERE) {
  const metal_sim::Thread& self = *metal_sim::current();
  if (self.unfenced) self.exchange[-int(self.simdgroup_index_in_threadgroup)].unfenced = 1;
  metal::threadgroup_barrier(metal::mem_flags::mem_device | metal::mem_flags::mem_threadgroup, file, line);
}
METAL_SIM_INLINE void simdgroup_barrier(METAL_SIM_HERE) {
  metal::simdgroup_barrier(metal::mem_flags::mem_device | metal::mem_flags::mem_threadgroup, file, line);
}

/** What all lanes leave for the others. */
template <typename T>
METAL_SIM_INLINE metal_sim::Lanes<T> all_lanes(T value, const char* file, uint line, const char* operation,
                                              void (*last)(metal_sim::Exchange&, uint) = nullptr) {
  const auto lanes = metal_sim::exchange(value, file, line, operation, last);
  if (lanes.exchange.active[lanes.phase] != kLanes)
    metal_sim::current()->host->undefined(metal_sim::Undefined::kLane, lanes.site, metal_sim::kSimdgroupSize);
  return lanes;
}
#define METAL_SIM_LANES(name, of, ...)                      \
  METAL_SIM_INLINE uint name(__VA_ARGS__, METAL_SIM_HERE) { \
    const auto lanes = all_lanes(x, file, line, #name);      \
    return of;                                              \
  }
METAL_SIM_LANES(shuffle, lanes(lane & 31), uint x, uint lane)
METAL_SIM_LANES(shuffle_xor, lanes((lanes.lane ^ by) & 31), uint x, uint by)
METAL_SIM_LANES(shuffle_up, lanes.lane < by ? x : lanes(lanes.lane - by), uint x, uint by)
METAL_SIM_LANES(shuffle_down, lanes.lane + by > 31 ? x : lanes(lanes.lane + by), uint x, uint by)
template <typename F>
METAL_SIM_INLINE uint over_lanes(const metal_sim::Lanes<uint>& lanes, F combine) {
  uint r = lanes(0);
  for (uint i = 1; i < 32; ++i) r = combine(r, lanes(i), i);
  return r;
}
METAL_SIM_LANES(ballot_of, over_lanes(lanes, [](uint a, uint b, uint i) { return a | b << i; }), uint x)
METAL_SIM_LANES(reduce_add, over_lanes(lanes, [](uint a, uint b, uint) { return a + b; }), uint x)
METAL_SIM_LANES(reduce_min, over_lanes(lanes, [](uint a, uint b, uint) { return b < a ? b : a; }), uint x)
METAL_SIM_LANES(reduce_max, over_lanes(lanes, [](uint a, uint b, uint) { return a < b ? b : a; }), uint x)
METAL_SIM_INLINE uint ballot(bool x, METAL_SIM_HERE) { return ballot_of(uint(x), file, line); }

METAL_SIM_INLINE metal::atomic_uint* as_atomic(const volatile uint* at) { return (metal::atomic_uint*)at; }
METAL_SIM_INLINE metal::atomic_int* as_atomic(const volatile int* at) { return (metal::atomic_int*)at; }
METAL_SIM_INLINE uint atomic_load(const volatile uint* at) {
  return metal::atomic_load_explicit(as_atomic(at), metal::memory_order_relaxed);
}
METAL_SIM_INLINE void atomic_store(volatile uint* at, uint x) {
  metal::atomic_store_explicit(as_atomic(at), x, metal::memory_order_relaxed);
}
#define METAL_SIM_ATOMIC(name, of, T)                                           \
  METAL_SIM_INLINE T name(volatile T* at, T x) {                                \
    return metal::of##_explicit(as_atomic(at), x, metal::memory_order_relaxed); \
  }
METAL_SIM_ATOMIC(atomic_exchange, atomic_exchange, uint)
METAL_SIM_ATOMIC(atomic_add, atomic_fetch_add, uint)
METAL_SIM_ATOMIC(atomic_and, atomic_fetch_and, uint)
METAL_SIM_ATOMIC(atomic_or, atomic_fetch_or, uint)
METAL_SIM_ATOMIC(atomic_xor, atomic_fetch_xor, uint)
METAL_SIM_ATOMIC(atomic_min, atomic_fetch_min, uint)
METAL_SIM_ATOMIC(atomic_max, atomic_fetch_max, uint)
METAL_SIM_ATOMIC(atomic_min, atomic_fetch_min, int)
METAL_SIM_ATOMIC(atomic_max, atomic_fetch_max, int)
METAL_SIM_INLINE uint atomic_compare_exchange(volatile uint* at, uint expected, uint x) {
  uint before = expected;
  // A weak exchange may fail where the value is the expected one; CUDA's does not.
  while (!metal::atomic_compare_exchange_weak_explicit(as_atomic(at), &before, x, metal::memory_order_relaxed,
                                                       metal::memory_order_relaxed) &&
         before == expected) {
  }
  return before;
}

/** What a lane gives to a product of matrices, and gets. */
struct Fragments {
  uint a[4], b[2];
  float d[4];
};

enum class Kind { kTf32, kF16, kBf16 };

/** Element k of a lane's part of a row, `at` registers: a 32-bit number, or one of a pair. */
template <Kind kKind>
METAL_SIM_INLINE float element(uint pair, uint k) {
  if (kKind == Kind::kTf32) return bits<float>(pair & 0xffffe000u);
  const ushort raw = ushort(pair >> 16 * (k & 1));
  return kKind == Kind::kF16 ? of_f16(raw) : of_bf16(raw);
}

/** A sum as matrix units make it: of exact products, cut off at the digits of f32. */
METAL_SIM_INLINE float cut_off(double sum) {
  const float near = float(sum);
  const bool beyond = __builtin_fabs(double(near)) > __builtin_fabs(sum);
  return beyond && __builtin_fabsf(near) < __builtin_inff() ? bits<float>(bits<uint>(near) - 1) : near;
}

/** d [16, 8] += a [16, K] · b [K, 8]: K is 8, or 16 for pairs of 16 bits. */
template <Kind kKind, uint K>
__attribute__((nodebug, no_sanitize("thread"))) void multiply(metal_sim::Exchange& shared, uint32_t phase) {
  if (shared.active[phase] != 0xffffffffu) return;
  Fragments lanes[32];
  for (uint i = 0; i < 32; ++i) lanes[i] = metal_sim::get<Fragments>(shared.slot[phase][i]);
  double a[16][K], b[K][8];
  for (uint k = 0; k < K; ++k) {
    // Which lane of a row has element k, and in which register of four rows of eight.
    const uint lane = kKind == Kind::kTf32 ? k % 4 : k % 8 / 2, part = kKind == Kind::kTf32 ? k / 4 : k / 8;
    for (uint row = 0; row < 16; ++row) a[row][k] = element<kKind>(lanes[row % 8 * 4 + lane].a[row / 8 + 2 * part], k);
    for (uint column = 0; column < 8; ++column) b[k][column] = element<kKind>(lanes[column * 4 + lane].b[part], k);
  }
  for (uint row = 0; row < 16; ++row) {
    double sums[8];
    for (uint column = 0; column < 8; ++column)
      sums[column] = lanes[row % 8 * 4 + column / 2].d[row / 8 * 2 + column % 2];
    for (uint k = 0; k < K; ++k)
      for (uint column = 0; column < 8; ++column) sums[column] += a[row][k] * b[k][column];
    for (uint column = 0; column < 8; ++column)
      lanes[row % 8 * 4 + column / 2].d[row / 8 * 2 + column % 2] = cut_off(sums[column]);
  }
  for (uint i = 0; i < 32; ++i) metal_sim::put(shared.slot[phase][i], lanes[i]);
}
template <Kind kKind, uint K>
METAL_SIM_INLINE void mma(float (&d)[4], const Fragments& own, const char* file, uint line) {
  const auto lanes = all_lanes(own, file, line, "mma", multiply<kKind, K>);
  const Fragments result = lanes(lanes.lane);
  for (uint i = 0; i < 4; ++i) d[i] = result.d[i];
}
METAL_SIM_INLINE void mma_tf32_k8(float (&d)[4], uint a0, uint a1, uint a2, uint a3, uint b0, uint b1, METAL_SIM_HERE) {
  mma<Kind::kTf32, 8>(d, {{a0, a1, a2, a3}, {b0, b1}, {d[0], d[1], d[2], d[3]}}, file, line);
}
#define METAL_SIM_MMA16(type, kind)                                                                          \
  METAL_SIM_INLINE void mma_##type##_k8(float(&d)[4], uint a0, uint a1, uint b0, METAL_SIM_HERE) {           \
    mma<Kind::kind, 8>(d, {{a0, a1}, {b0}, {d[0], d[1], d[2], d[3]}}, file, line);                           \
  }                                                                                                          \
  METAL_SIM_INLINE void mma_##type##_k16(float(&d)[4], uint a0, uint a1, uint a2, uint a3, uint b0, uint b1, \
                                         METAL_SIM_HERE) {                                                   \
    mma<Kind::kind, 16>(d, {{a0, a1, a2, a3}, {b0, b1}, {d[0], d[1], d[2], d[3]}}, file, line);              \
  }
METAL_SIM_MMA16(f16, kF16)
METAL_SIM_MMA16(bf16, kBf16)

/** The same of bytes, whose sums are whole numbers. */
struct ByteFragments {
  uint a[4], b[2];
  int d[4];
};
__attribute__((nodebug, no_sanitize("thread"))) inline void multiply_bytes(metal_sim::Exchange& shared,
                                                                           uint32_t phase) {
  if (shared.active[phase] != 0xffffffffu) return;
  ByteFragments lanes[32];
  for (uint i = 0; i < 32; ++i) lanes[i] = metal_sim::get<ByteFragments>(shared.slot[phase][i]);
  for (uint row = 0; row < 16; ++row)
    for (uint column = 0; column < 8; ++column) {
      int& sum = lanes[row % 8 * 4 + column / 2].d[row / 8 * 2 + column % 2];
      for (uint k = 0; k < 32; ++k) {
        const uint lane = k % 16 / 4, part = k / 16, shift = 8 * (k % 4);
        const uint a = lanes[row % 8 * 4 + lane].a[row / 8 + 2 * part] >> shift & 0xff;
        sum += int(a) * (signed char)(lanes[column * 4 + lane].b[part] >> shift);
      }
    }
  for (uint i = 0; i < 32; ++i) metal_sim::put(shared.slot[phase][i], lanes[i]);
}
METAL_SIM_INLINE void mma_bytes_k32(int (&d)[4], uint a0, uint a1, uint a2, uint a3, uint b0, uint b1, METAL_SIM_HERE) {
  const ByteFragments own = {{a0, a1, a2, a3}, {b0, b1}, {d[0], d[1], d[2], d[3]}};
  const auto lanes = all_lanes(own, file, line, "mma", multiply_bytes);
  const ByteFragments result = lanes(lanes.lane);
  for (uint i = 0; i < 4; ++i) d[i] = result.d[i];
}

METAL_SIM_INLINE uint transposed16(uint pair, METAL_SIM_HERE) {
  const auto lanes = all_lanes(pair, file, line, "transposed16");
  const uint row = lanes.lane / 4, column = lanes.lane % 4 * 2;
  const uint low = lanes(column * 4 + row / 2), high = lanes((column + 1) * 4 + row / 2);
  return (low >> 16 * (row % 2) & 0xffff) | (high >> 16 * (row % 2)) << 16;
}

/** The pair of one matrix whose rows lanes `first` … name. */
METAL_SIM_INLINE uint pair_of(const metal_sim::Lanes<const void*>& lanes, uint first, bool transposed) {
  const uint row = lanes.lane / 4, column = lanes.lane % 4 * 2;
  const auto at = [&](uint r, uint c) { return uint(static_cast<const ushort*>(lanes(first + r))[c]); };
  if (transposed) return at(column, row) | at(column + 1, row) << 16;
  return *reinterpret_cast<const uint*>(static_cast<const ushort*>(lanes(first + row)) + column);
}
METAL_SIM_INLINE metal_sim::Lanes<const void*> rows(const void* row, uint count, const char* file, uint line) {
  const auto lanes = all_lanes(row, file, line, "load_matrices");
  if (lanes.lane < 8 * count && uintptr_t(row) % 16 != 0)
    metal_sim::current()->host->undefined(metal_sim::Undefined::kAlignment, lanes.site, 0);
  return lanes;
}
#define METAL_SIM_LOAD_MATRICES(name, transposed)                                                       \
  METAL_SIM_INLINE void name(uint& m0, const void* row, METAL_SIM_HERE) {                               \
    const auto lanes = rows(row, 1, file, line);                                                        \
    m0 = pair_of(lanes, 0, transposed);                                                                 \
  }                                                                                                     \
  METAL_SIM_INLINE void name(uint& m0, uint& m1, const void* row, METAL_SIM_HERE) {                     \
    const auto lanes = rows(row, 2, file, line);                                                        \
    m0 = pair_of(lanes, 0, transposed);                                                                 \
    m1 = pair_of(lanes, 8, transposed);                                                                 \
  }                                                                                                     \
  METAL_SIM_INLINE void name(uint& m0, uint& m1, uint& m2, uint& m3, const void* row, METAL_SIM_HERE) { \
    const auto lanes = rows(row, 4, file, line);                                                        \
    m0 = pair_of(lanes, 0, transposed);                                                                 \
    m1 = pair_of(lanes, 8, transposed);                                                                 \
    m2 = pair_of(lanes, 16, transposed);                                                                \
    m3 = pair_of(lanes, 24, transposed);                                                                \
  }
METAL_SIM_LOAD_MATRICES(load_matrices, false)
METAL_SIM_LOAD_MATRICES(load_matrices_transposed, true)

/** Each lane stores its elements where the lanes that name their rows say. */
METAL_SIM_INLINE void store_rows(void* row, const uint (&m)[4], bool transposed, const char* file, uint line) {
  const auto lanes = rows(row, 4, file, line);
  const uint own = lanes.lane / 4, pair = lanes.lane % 4 * 2;
  for (uint i = 0; i < 4; ++i)
    for (uint e = 0; e < 2; ++e) {
      const uint r = transposed ? pair + e : own, c = transposed ? own : pair + e;
      static_cast<ushort*>(const_cast<void*>(lanes(8 * i + r)))[c] = ushort(m[i] >> 16 * e);
    }
}
METAL_SIM_INLINE void store_matrices(void* row, const uint (&m)[4], METAL_SIM_HERE) {
  store_rows(row, m, false, file, line);
}
METAL_SIM_INLINE void store_matrices_transposed(void* row, const uint (&m)[4], METAL_SIM_HERE) {
  store_rows(row, m, true, file, line);
}

METAL_SIM_INLINE void wait_for_kernels() {}
METAL_SIM_INLINE void wait_for_kernels(uint) {}

/** Copies arrive as late as they may: until a thread waits for them, their places hold nothing that is a number. */
METAL_SIM_INLINE void arrive(const metal_sim::PendingCopy& copy) {
  for (uint at = 0; at < copy.bytes; at += 4) {
    uint word = 0;
    for (uint i = 0; i < 4 && at + i < copy.count; i += 2)
      word |= uint(*(const ushort*)((const uchar*)copy.from + at + i)) << 8 * i;
    *(uint*)((uchar*)copy.to + at) = word;
  }
}
/** All but the last `later` groups of this thread's copies. */
METAL_SIM_INLINE void arrive_all(uint later) {
  metal_sim::Thread& self = *metal_sim::current();
  uint kept = 0;
  for (uint i = 0; i < self.copy_count; ++i) {
    const metal_sim::PendingCopy copy = self.copies[i];
    if (copy.group + later < self.copy_groups)
      arrive(copy), self.unfenced = 1;
    else
      self.copies[kept++] = copy;
  }
  self.copy_count = kept;
}
template <uint Bytes>
METAL_SIM_INLINE void copy_start(void* to, const void* from, uint count = Bytes, METAL_SIM_HERE) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "a copy has 4, 8 or 16 bytes");
  metal_sim::Thread& self = *metal_sim::current();
  if (uintptr_t(to) % Bytes != 0 || uintptr_t(from) % Bytes != 0)
    self.host->undefined(metal_sim::Undefined::kAlignment, {file, line, "copy_start"}, 0);
  for (uint at = 0; at < Bytes; at += 4) *(uint*)((uchar*)to + at) = 0xffffffffu;
  if (self.copy_count == metal_sim::kMaxCopies) {
    arrive(self.copies[0]);
    __builtin_memmove(self.copies, self.copies + 1, sizeof self.copies - sizeof self.copies[0]);
    --self.copy_count;
  }
  self.copies[self.copy_count++] = {to, from, Bytes, count < Bytes ? count : Bytes, self.copy_groups};
}
METAL_SIM_INLINE void copy_once(void* to, const void* from, METAL_SIM_HERE) {
  copy_start<16>(to, from, 16, file, line);
}
METAL_SIM_INLINE void copies_end() { ++metal_sim::current()->copy_groups; }
template <uint Later>
METAL_SIM_INLINE void copies_wait() {
  arrive_all(Later);
}

}  // namespace machine

#include "cuda_warpgroups.h"
