// out = x · weightᵀ, tiled: x [rows, depth], weight [columns, depth], out [rows, columns]. A threadgroup of 128 threads
// makes 32 × 32 outputs, each of its four simdgroups 16 × 16.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

struct MatmulParams {
  uint rows, columns, depth;
};

constant constexpr uint kTile = 32;
// One more 16-byte vector in a row keeps columns of the tile out of one memory bank.
constant constexpr uint kStride = kTile + 4;

template <typename T>
METAL_FUNC void load_tile(threadgroup float* tile, device const T* from, uint first, uint count, uint k, uint depth,
                          uint thread_index) {
  for (uint i = thread_index; i < kTile * kTile; i += 128) {
    const uint row = i / kTile, column = i % kTile;
    const bool inside = first + row < count && k + column < depth;
    tile[row * kStride + column] = inside ? float(from[(first + row) * depth + k + column]) : 0.0f;
  }
}

/// Threadgroup memory: 2 · 32 · 36 floats.
template <typename T>
kernel void matmul(device const T* x [[buffer(0)]], device const T* weight [[buffer(1)]], device T* out [[buffer(2)]],
                   constant MatmulParams& p [[buffer(3)]], threadgroup float* tiles [[threadgroup(0)]],
                   uint3 group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float* a = tiles;
  threadgroup float* b = tiles + kTile * kStride;
  const uint row = group.y * kTile, column = group.x * kTile;
  const uint top = simdgroup / 2 * 16, left = simdgroup % 2 * 16;
  simdgroup_float8x8 sum[2][2];
  for (uint i = 0; i < 4; ++i) sum[i / 2][i % 2] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint k = 0; k < p.depth; k += kTile) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    load_tile(a, x, row, p.rows, k, p.depth, thread_index);
    load_tile(b, weight, column, p.columns, k, p.depth, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint inner = 0; inner < kTile; inner += 8) {
      simdgroup_float8x8 left_part[2], right_part[2];
      for (uint i = 0; i < 2; ++i) {
        simdgroup_load(left_part[i], a + (top + 8 * i) * kStride + inner, kStride);
        simdgroup_load(right_part[i], b + (left + 8 * i) * kStride + inner, kStride, ulong2(0), true);
      }
      for (uint i = 0; i < 4; ++i)
        simdgroup_multiply_accumulate(sum[i / 2][i % 2], left_part[i / 2], right_part[i % 2], sum[i / 2][i % 2]);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = 0; i < 4; ++i)
    simdgroup_store(sum[i / 2][i % 2], a + (top + i / 2 * 8) * kStride + left + i % 2 * 8, kStride);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = thread_index; i < kTile * kTile; i += 128) {
    const uint r = i / kTile, c = i % kTile;
    if (row + r < p.rows && column + c < p.columns) out[(row + r) * p.columns + column + c] = T(a[r * kStride + c]);
  }
}

#define INSTANCE(name, T) template [[host_name("matmul_" name)]] kernel decltype(matmul<T>) matmul<T>;
INSTANCE("f32", float)
INSTANCE("f16", half)
INSTANCE("bf16", bfloat)
