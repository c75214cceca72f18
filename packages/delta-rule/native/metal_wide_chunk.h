// Another order of work for whole chunks of a stage, where a GPU has one: these return whether they have done it. In a
// CUDA translation cuda_wide_chunk.h takes this header's place.
#pragma once
#include "chunk_strips.h"

namespace mlxts {

// u = X · round(β v) and w = X · round(β e^G k) of a chunk, from its first token on.
template <typename T>
struct WuTensors {
  device const T *v, *k;
  device const float *x, *beta;
  device T *u, *w;
  CumulativeGateTensors G;
  uint vStride, kStride, wStride, V, K;
};

// A chunk's q and k, vNew and o, from its first token on, and the state before it.
template <typename T>
struct OutputTensors {
  device const T *q, *k, *vNew, *h;
  device T* o;
  CumulativeGateTensors G;
  device const uchar* mask;  // null where all tokens count
  uint keyStride, valueStride, V, K;
  float scale;
};

}  // namespace mlxts
