// A whole chunk of a stage that may be computed in another order, see metal_wide_chunk.h: its tensors from the chunk's
// first token on.
#pragma once
#include "chunk_strips.h"
#include "unit_rows_metal.h"

namespace mlxts {

// `h` is the state before the chunk, `mask` null where there is none. With `normalized` rows of q are what `norm` makes
// of them.
template <typename T>
struct OutputTensors {
  device const T *q, *k, *vNew, *h;
  device T* o;
  CumulativeGateTensors G;
  device const uchar* mask;
  uint V, K, keyStride, valueStride;
  float scale;
  bool normalized;
  RowNorm norm;
};

}  // namespace mlxts
