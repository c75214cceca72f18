// A whole chunk of a stage that may be computed in another order, see metal_wide_chunk.h: its tensors from the chunk's
// first token on.
#pragma once
#include "chunk_strips.h"

namespace mlxts {

// u = X · round(β v), w = X · round(β exp(G) k). Elements from token to token.
template <typename T>
struct WuTensors {
  device const T *v, *k;
  device const float *x, *beta;
  device T *u, *w;
  CumulativeGateTensors G;
  uint V, K, vStride, kStride, wStride, xStride, betaStride;
};

// `h` is the state before the chunk, `mask` null where there is none.
template <typename T>
struct OutputTensors {
  device const T *q, *k, *vNew, *h;
  device T* o;
  CumulativeGateTensors G;
  device const uchar* mask;
  uint V, K, keyStride, valueStride;
  float scale;
};

}  // namespace mlxts
