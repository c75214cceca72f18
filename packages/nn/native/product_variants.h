// K(x, w, o, X, W, O) for each dtype of x, of the weight and of the output: their names, then their types. C++ and
// Metal both compile this.
#pragma once

#ifdef __METAL_VERSION__
namespace mlxts {
typedef half f16;
typedef bfloat bf16;
}  // namespace mlxts
#endif

#define MLXTS_PRODUCT_OUTPUTS(K, x, w, X, W) K(x, w, f32, X, W, float) K(x, w, f16, X, W, f16) K(x, w, bf16, X, W, bf16)
#define MLXTS_PRODUCT_WEIGHTS(K, x, X)       \
  MLXTS_PRODUCT_OUTPUTS(K, x, f32, X, float) \
  MLXTS_PRODUCT_OUTPUTS(K, x, f16, X, f16)   \
  MLXTS_PRODUCT_OUTPUTS(K, x, bf16, X, bf16)
#define MLXTS_PRODUCT_VARIANTS(K)      \
  MLXTS_PRODUCT_WEIGHTS(K, f32, float) \
  MLXTS_PRODUCT_WEIGHTS(K, f16, f16)   \
  MLXTS_PRODUCT_WEIGHTS(K, bf16, bf16)
