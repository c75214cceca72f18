// Where sequences lie, for all kernels of the rule: side by side in rows of `tokens`, or packed into one row that
// cuSeqlens cuts; and what their gates and states are. The same for CPUs: sequences.h.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

struct Sequence {
  uint begin, tokens;
};

METAL_FUNC Sequence sequence_at(device const int* cuSeqlens, bool packed, uint sequence, uint tokens) {
  if (!packed) return {sequence * tokens, tokens};
  return {uint(cuSeqlens[sequence]), uint(cuSeqlens[sequence + 1] - cuSeqlens[sequence])};
}

// Whether cuSeqlens is right: 0, not decreasing, `tokens`. To be asked by whole simdgroups before anything else; the
// first wrong entry is reported.
METAL_FUNC bool packed_right(device const int* cuSeqlens, bool packed, uint sequences, uint tokens,
                             device MlxtsFault* fault, uint code, uint lane) {
  if (!packed) return true;
  uint wrong = ~0u;
  for (uint i = lane; i <= sequences && wrong == ~0u; i += kSimd) {
    const int at = cuSeqlens[i], least = i == 0 ? 0 : metal::max(0, cuSeqlens[i - 1]);
    const bool right = at >= least && uint(at) <= tokens && (i > 0 || at == 0) && (i < sequences || uint(at) == tokens);
    if (!right) wrong = i;
  }
  const uint first = metal::simd_min(wrong);
  if (first == ~0u) return true;
  if (wrong == first) report_fault(fault, code, first, uint(cuSeqlens[first]));
  return false;
}

// Whether no sequence is to give back more than `most` tokens; a negative number is a large one. To be asked by whole
// simdgroups; the first wrong number is reported.
METAL_FUNC bool rejected_right(device const int* rejected, uint sequences, uint most, device MlxtsFault* fault,
                               uint code, uint lane) {
  uint wrong = ~0u;
  for (uint s = lane; s < sequences && wrong == ~0u; s += kSimd)
    if (uint(rejected[s]) > most) wrong = s;
  const uint first = metal::simd_min(wrong);
  if (first == ~0u) return true;
  if (wrong == first) report_fault(fault, code, uint(rejected[first]), first);
  return false;
}

// Tokens of a sequence that go by whole chunks so that at least `last` are left; all of them if none are to be left.
METAL_FUNC uint chunked_tokens(uint tokens, uint chunkLength, uint last) {
  if (last == 0) return tokens;
  return tokens > last ? (tokens - last) / chunkLength * chunkLength : 0;
}

// The slot of a sequence's first chunk, of all slots of the call: see ChunkDims. `chunks` is NT.
METAL_FUNC uint first_slot(device const int* cuSeqlens, bool packed, uint sequence, uint chunks, uint chunkLength) {
  return packed ? uint(cuSeqlens[sequence]) / chunkLength + sequence : sequence * chunks;
}

// A slot's sequence and which of its chunks it is; the chunk may lie beyond the sequence's end.
struct Slot {
  uint sequence, chunk;
};

METAL_FUNC Slot slot_at(device const int* cuSeqlens, bool packed, uint slot, uint sequences, uint chunks,
                        uint chunkLength) {
  if (!packed) return {slot / chunks, slot % chunks};
  uint low = 0, high = sequences;  // the last sequence that begins at this slot or before it
  while (high - low > 1) {
    const uint middle = (low + high) / 2;
    if (first_slot(cuSeqlens, true, middle, chunks, chunkLength) <= slot)
      low = middle;
    else
      high = middle;
  }
  return {low, slot - first_slot(cuSeqlens, true, low, chunks, chunkLength)};
}

// The place of a sequence's first snapshot.
METAL_FUNC uint first_snapshot(device const int* cuSeqlens, bool packed, uint sequence, uint tokens, uint every) {
  if (!packed) return sequence * (tokens / every);
  uint count = 0;
  for (uint s = 0; s < sequence; ++s) count += uint(cuSeqlens[s + 1] - cuSeqlens[s]) / every;
  return count;
}

// ln(decay) of a gate; a factor of 0: the gate is the decay itself, and 0 becomes what exp() takes to 0.
METAL_FUNC float log_decay(float gate, float factor) {
  if (factor != 0.0f) return gate * factor;
  return gate > 0.0f ? metal::max(metal::precise::log(gate), -104.0f) : -104.0f;
}

// The gate that keeps everything.
METAL_FUNC float neutral_gate(float factor) { return factor != 0.0f ? 0.0f : 1.0f; }

METAL_FUNC uint key_head_of(uint head, uint headsPerKey, uint keyHeads) { return head / headsPerKey % keyHeads; }

}  // namespace mlxts
