// Legal MSL that the simulator takes; the tests know every number.
#include <metal_stdlib>
#include <metal_atomic>
#include <metal_simdgroup>
#include <metal_simdgroup_matrix>
#include "features.params.h"
using namespace metal;

constant float kTable[4] = {0.5, 1.0, 2.0, 4.0};
constant constexpr uint kBlock = 64;
constant float4 kVector = float4(1, 2, 3, 4);

namespace features {
struct Traits {
  static constant constexpr const int kCount = 4;
};
enum class Mode : uint { kPlain, kTwice };
template <typename T, int N>
struct Block {
  T v[N];
  T sum() const thread {
    T total = T(0);
    for (int i = 0; i < N; ++i) total += v[i];
    return total;
  }
};
template <typename T>
METAL_FUNC T twice(T x) {
  return x + x;
}
inline float first(device const float* p) { return p[0]; }
inline void add_to(thread float& x, float y) { x += y; }
}  // namespace features

using DeviceFloats = device float*;

/// One line of template, two macros, attributes in any order.
template <typename T, int N, features::Mode M = features::Mode::kPlain>
[[kernel, max_total_threads_per_threadgroup(128)]] void scale(
    device const T* in [[buffer(FEATURES_IN)]], device T* out [[buffer(FEATURES_OUT)]],
    const constant FeaturesParams& p [[buffer(FEATURES_PARAMS)]], uint3 position [[thread_position_in_grid]],
    ushort3 local [[thread_position_in_threadgroup]]) {
  threadgroup T tile[N], spare;
  threadgroup features::Block<float, 2> extra[2][4];
  tile[local.x] = in[position.x];
  if (local.x == 0) spare = T(1);
  if (local.x < 4) extra[local.x & 1][local.x].v[1] = float(local.x);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (position.x >= p.count) return;
  thread float r = float(tile[N - 1 - local.x]) * p.scale * kTable[position.x & 3];
  if (M == features::Mode::kTwice) r = features::twice(r);
  features::add_to(r, extra[1][features::Traits::kCount - 1].v[1] + float(spare));
  out[position.x] = T(r);
}
#define INSTANTIATE(name, ...) \
  template [[host_name("scale_" name)]] [[kernel]] decltype(scale<__VA_ARGS__>) scale<__VA_ARGS__>;
INSTANTIATE("f32", float, kBlock)
INSTANTIATE("bf16" "_twice", bfloat, 64, features::Mode::kTwice)
template [[host_name("scale_f16")]] [[kernel]] void scale<half, 64>(device const half*, device half*,
                                                                    const constant FeaturesParams&, uint3, ushort3);

kernel void math(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  const float v = x[i];
  DeviceFloats o = out + i * 32;
  o[0] = exp(v);
  o[1] = exp2(v);
  o[2] = log(v + 4);
  o[3] = log2(v + 4);
  o[4] = rsqrt(v + 4);
  o[5] = metal::precise::sqrt(v + 4);
  o[6] = fma(v, v, 1);
  o[7] = clamp(v, -0.5f, 0.5f);
  o[8] = min(v, 0.25f) + max(v, 0.75f);
  o[9] = select(1.0f, 2.0f, v > 0);
  o[10] = mix(1.0f, 3.0f, v);
  o[11] = fabs(v) + abs(v);
  o[12] = floor(v) + ceil(v);
  o[13] = round(v);
  o[14] = rint(v);
  o[15] = trunc(v);
  o[16] = sin(v) + cos(v);
  o[17] = fast::tanh(v);
  o[18] = pow(v + 4, 1.5f);
  o[19] = isnan(v - NAN) ? 1 : 0;
  o[20] = isinf(INFINITY) && !isinf(v) && isfinite(v) ? 1 : 0;
  o[21] = sign(v) + fract(v);
  o[22] = float(half(v));
  o[23] = float(bfloat(v));
  o[24] = 1.0 / 3.0;
  o[25] = as_type<float>(as_type<uint>(v) ^ 0x80000000u);
  o[26] = copysign(2.0f, v) + saturate(v);
  o[27] = float(1.5h * half(v));
  o[28] = fmod(v, 0.75f) + atan2(v, 2.0f);
  o[29] = dot(float3(v, 1, 2), float3(3, 4, 5)) + length(float2(3, 4));
  o[30] = v * FLT_MIN;
  o[31] = float(numeric_limits<half>::max()) + HALF_MAX;
}

kernel void integers(device const uint* x [[buffer(0)]], device uint* out [[buffer(1)]],
                     uint i [[thread_position_in_grid]]) {
  const uint v = x[i];
  device uint* o = out + i * 16;
  o[0] = popcount(v);
  o[1] = clz(v);
  o[2] = ctz(v);
  o[3] = mulhi(v, 0x80000001u);
  o[4] = abs(int(v));
  o[5] = reverse_bits(v);
  o[6] = rotate(v, 8u);
  o[7] = extract_bits(v, 4, 12);
  o[8] = insert_bits(v, 0xffu, 8, 8);
  o[9] = uint(as_type<uchar4>(v).w) + as_type<ushort2>(v).x;
  o[10] = min(v, 1000u) + max(int(v), -5) + clamp(v, 2u, 9u);
  o[11] = addsat(v, v) - subsat(1u, v);
  o[12] = uint(ulong(v) * v >> 32);
  o[13] = uint(uchar(v)) + uint(int(char(v)));
  o[14] = absdiff(v, 7u);
  o[15] = uint((v << 3) | (v >> 29));
}

kernel void vectors(device const float4* x [[buffer(0)]], device float4* out [[buffer(1)]],
                    device packed_float3* packed [[buffer(2)]], device const uchar* bytes [[buffer(3)]],
                    device half4* halves [[buffer(4)]], device bfloat2* bfloats [[buffer(5)]],
                    uint i [[thread_position_in_grid]]) {
  float4 v = x[i];
  v += 1;
  v = v * 2.0f - kVector;
  v.y = -v.x;
  v[2] = max(v, 0.0f).w;
  const bool4 mask = v > float4(0);
  out[i] = select(v, float4(float2(9), 8, 7), mask) + float4(any(mask), all(mask), float2(0));
  packed[i] = packed_float3(float3(v.x, v.r, float(i)));
  const uint4 b = uint4(*(device const uchar4*)(bytes + 4 * i));
  halves[i] = half4(float4(b & 15u)) * half(0.5);
  bfloats[i] = bfloat2(bfloat(v.x), bfloat(1.0f) + bfloat(0.0078125f) / bfloat(4));
}

kernel void simdgroups(device uint* out [[buffer(0)]], device float* sums [[buffer(1)]],
                       uint i [[thread_position_in_threadgroup]], ushort lane [[thread_index_in_simdgroup]],
                       uint width [[threads_per_simdgroup]]) {
  device uint* o = out + i * 16;
  o[0] = simd_sum(i);
  o[1] = simd_max(i) * 100 + simd_min(i);
  o[2] = simd_broadcast(i, 3);
  o[3] = simd_shuffle(i, ushort(width - 1 - lane));
  o[4] = simd_shuffle_xor(i, 5);
  o[5] = simd_shuffle_up(i, 2);
  o[6] = simd_shuffle_down(i, 30);
  o[7] = simd_prefix_inclusive_sum(i);
  o[8] = simd_prefix_exclusive_sum(i);
  o[9] = simd_any(lane == 5) + 2 * simd_all(lane < 31) + 4 * simd_all(true);
  o[10] = uint(ulong(simd_ballot(lane % 3 == 0)));
  o[11] = simd_broadcast_first(i) + simd_is_first();
  o[12] = simd_or(1u << lane) ^ simd_xor(i) ^ simd_and(i | 64);
  o[13] = simd_shuffle_rotate_down(i, 1);
  sums[i] = simd_sum(1.0f / float(i + 1)) + simd_product(i < 32 ? 1.0f : 2.0f);
  o[14] = i < 40 ? 1 : 0;
  if (i >= 40) return;
  o[15] = simd_sum(1u);
}

kernel void matrices(device const half* a [[buffer(0)]], device const half* b [[buffer(1)]],
                     device const float* c [[buffer(2)]], device float* out [[buffer(3)]],
                     threadgroup bfloat* tile [[threadgroup(0)]], uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_matrix<half, 8, 8> left, right;
  simdgroup_float8x8 sum;
  simdgroup_load(left, a, 16, ulong2(8, 0));
  simdgroup_load(right, b, 8, 0, true);
  simdgroup_load(sum, c);
  simdgroup_multiply_accumulate(sum, left, right, sum);
  simdgroup_store(sum, out);
  simdgroup_bfloat8x8 narrow = make_filled_simdgroup_matrix<bfloat, 8, 8>(0.0f);
  narrow.thread_elements()[0] = bfloat(float(lane));
  narrow.thread_elements()[1] = bfloat(0.5f);
  simdgroup_store(narrow, tile, 8);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  out[64 + lane] = float(tile[lane]);
  out[96 + lane] = float(tile[lane + 32]);
  simdgroup_float8x8 product, identity(1.0f);
  simdgroup_multiply(product, sum, identity);
  simdgroup_store(product, out + 128, 8, ulong2(0), true);
}

kernel void atomics(device atomic_uint* total [[buffer(0)]], device atomic_int* least [[buffer(1)]],
                    device uint* out [[buffer(2)]], threadgroup atomic_uint* shared [[threadgroup(0)]],
                    uint i [[thread_position_in_grid]], uint local [[thread_position_in_threadgroup]]) {
  if (local == 0) atomic_store_explicit(shared, 0, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  atomic_fetch_add_explicit(shared, local, memory_order_relaxed);
  atomic_fetch_add_explicit(total, i, memory_order_relaxed);
  atomic_fetch_min_explicit(least, -int(i), memory_order_relaxed);
  uint expected = atomic_load_explicit(total + 1, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(total + 1, &expected, expected + 2, memory_order_relaxed,
                                                memory_order_relaxed)) {
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = atomic_load_explicit(shared, memory_order_relaxed);
}

kernel void edges(device uint* out [[buffer(0)]], uint2 size [[threads_per_threadgroup]],
                  uint2 full [[dispatch_threads_per_threadgroup]], uint2 groups [[threadgroups_per_grid]],
                  uint2 grid [[threads_per_grid]], uint2 position [[thread_position_in_grid]],
                  ushort2 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]]) {
  device uint* o = out + (position.y * grid.x + position.x) * 8;
  o[0] = size.x * 100 + size.y;
  o[1] = full.x * 100 + full.y;
  o[2] = groups.x * 100 + groups.y;
  o[3] = group.x * 100 + group.y;
  o[4] = index;
  o[5] = position.x * 100 + position.y;
}

typedef struct {
  uint n;
  float scale;
} Scaled;
struct Pointers {
  device float* p;
  threadgroup float* t;
};
template <typename T>
constant constexpr bool kIsHalf = is_same_v<T, half>;
constant int2 kPairs[] = {int2(1, 2), int2(3, 4)};
static inline device const float* advance(device const float* p, uint n) { return p + n; }
template <typename T>
METAL_FUNC void reduce(threadgroup T* shared, thread T& v, uint i) {
  shared[i] = v;
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
#pragma unroll
  for (uint s = 16; s > 0; s >>= 1) {
    if (i < s) shared[i] += shared[i + s];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  v = shared[0];
}
[[host_name("renamed")]] [[kernel]] void forms(device float *a [[buffer(0)]], const device float *b [[buffer(1)]],
                                               constant Scaled *scaled [[buffer(2)]],
                                               volatile device atomic_uint &count [[buffer(3)]],
                                               threadgroup float *shared [[threadgroup(2)]],
                                               uint i [[thread_position_in_threadgroup]]) {
  device float *x = a, *y = a + 1;
  const Scaled copy = scaled[0];
  Pointers q{x, shared};
  float v = advance(b, copy.n)[i] * copy.scale;
  reduce(q.t, v, i);
  _Pragma("clang loop unroll(full)")
  for (int k = 0; k < 2; k++) v += kPairs[k].x;
  if (kIsHalf<float>) v = 0;
  if (i == 0) {
    *x = v;
    *y = float(int8_t(-3)) + min(int8_t(4), int8_t(5));
    q.p[2] = half(1.0) * 2.0h;
  }
  atomic_fetch_or_explicit(&count, 1u << i, memory_order_relaxed);
  uint8_t z[3] = {1, 2, 3};
  if (i < 2) a[3 + i] = z[i & 1];
}
