// A head's weight as shaders read it: numbers, or codes with scales and biases.
#pragma once
#include "head_weight.h"
#include "metal_affine.h"

namespace mlxts {

// What kernels are instances of: numbers of dtype T, or codes of `Bits` bits with scales and biases in S. `Word` and
// `Scale` are what the buffers hold. `some` takes the first `count` of four columns from a multiple of 4 on, 0 for the others.
template <typename T>
struct Dense {
  typedef T Word;
  typedef uchar Scale;
  device const T* first;
  uint cols;

  METAL_FUNC float4 some(ulong row, uint column, uint count) const thread {
    return load_some(first + row * cols + column, count);
  }
};

template <typename S, int Bits>
struct Affine {
  typedef uint Word;
  typedef S Scale;
  device const uint* words;
  device const S* scales;
  device const S* biases;
  uint cols, shift;  // of a column to its group

  // All four or none are there.
  METAL_FUNC float4 some(ulong row, uint column, uint count) const thread {
    if (count == 0) return float4(0.0f);
    const ulong group = row * (cols >> shift) + (column >> shift);
    const float scale = float(scales[group]), bias = centered<Bits>(scale, float(biases[group]));
    device const uint* from = words + row * (cols / 32 * Bits);
    return metal::fma(float4(Packed<Bits>::four(from, column)), float4(scale), float4(bias));
  }
};

// The rows of a head. Of a dense weight there are no scales and biases.
template <typename T, typename P>
METAL_FUNC void open(thread Dense<T>& weight, device const T* words, device const uchar*, device const uchar*,
                     constant P& p, uint head) {
  weight = {words + head_weight(p, head, 0), p.cols};
}
template <typename S, int Bits, typename P>
METAL_FUNC void open(thread Affine<S, Bits>& weight, device const uint* words, device const S* scales,
                     device const S* biases, constant P& p, uint head) {
  const ulong first = head_weight(p, head, 0);
  const uint shift = metal::ctz(p.groupSize);
  weight = {words + first / 32 * Bits, scales + (first >> shift), biases + (first >> shift), p.cols, shift};
}

}  // namespace mlxts

// K(name, type) for every weight.
#define MLXTS_WEIGHTS_OF(K, s, S) K(s, Dense<S>) K(s "b4", MLXTS_AFFINE(S, 4)) K(s "b8", MLXTS_AFFINE(S, 8))
#define MLXTS_AFFINE(S, bits) Affine<S, bits>
#define MLXTS_WEIGHTS(K) MLXTS_WEIGHTS_OF(K, "f32", float) MLXTS_WEIGHTS_OF(K, "f16", half) MLXTS_WEIGHTS_OF(K, "bf16", bfloat)
