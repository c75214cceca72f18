// What the shaders share: the matrices of a batch, the linear bias, the list of variants.
#pragma once
#include "metal_affine.h"

namespace mlxts {

typedef float f32;
typedef half f16;
typedef bfloat bf16;

// Which matrices of x and of the weights a batch index takes.
struct Batch {
  ulong x, q;
};

template <typename P>
METAL_FUNC Batch batch_at(constant P& p, uint z) {
  if (z == 0) return {0, 0};  // without divisions
  const uint i0 = z % p.batch0, i1 = z / p.batch0 % p.batch1, i2 = z / p.batch0 / p.batch1;
  return {ulong(i0) * p.xStride0 + ulong(i1) * p.xStride1 + ulong(i2) * p.xStride2,
          ulong(i0) * p.qStride0 + ulong(i1) * p.qStride1 + ulong(i2) * p.qStride2};
}

METAL_FUNC float linear_bias(device const uchar* bias, uint dtype, uint i) {
  if (dtype == 1) return ((device const float*)bias)[i];
  if (dtype == 2) return float(((device const half*)bias)[i]);
  if (dtype == 3) return float(((device const bfloat*)bias)[i]);
  return 0.0f;
}

}  // namespace mlxts

// K(X, S, O, bits) for every dtype of x, of the scales and of the output, and every width.
#define MLXTS_WIDTHS(K, X, S, O) K(X, S, O, 4) K(X, S, O, 8)
#define MLXTS_OUTPUTS(K, X, S) MLXTS_WIDTHS(K, X, S, f32) MLXTS_WIDTHS(K, X, S, f16) MLXTS_WIDTHS(K, X, S, bf16)
#define MLXTS_SCALES(K, X) MLXTS_OUTPUTS(K, X, f32) MLXTS_OUTPUTS(K, X, f16) MLXTS_OUTPUTS(K, X, bf16)
#define MLXTS_PRODUCTS(K) MLXTS_SCALES(K, f32) MLXTS_SCALES(K, f16) MLXTS_SCALES(K, bf16)
// K(S, O): for one row of x in bf16 against 4 bits.
#define MLXTS_ROWS_OF(K, S) K(S, f32) K(S, f16) K(S, bf16)
#define MLXTS_ROWS(K) MLXTS_ROWS_OF(K, f32) MLXTS_ROWS_OF(K, f16) MLXTS_ROWS_OF(K, bf16)
