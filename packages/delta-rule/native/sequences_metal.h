// Where sequences lie, for all kernels of the rule: side by side in rows of `tokens`, or packed into one row that
// cuSeqlens cuts; and what their gates and states are. The same for CPUs: sequences.h.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

struct Sequence {
  uint begin, tokens;
};

// Whether cuSeqlens is right: 0, not decreasing, `tokens`. To be asked by whole simdgroups before anything else; the
// first wrong entry is reported. The functions below read it again, and what they give lies within the tokens whatever
// has become of it.
METAL_FUNC bool packed_right(device const Index* cuSeqlens, bool packed, uint sequences, uint tokens,
                             device MlxtsFault* fault, uint code, uint lane) {
  if (!packed) return true;
  uint wrong = ~0u, found = 0;
  for (uint i = lane; i <= sequences && wrong == ~0u; i += kSimd) {
    const int at = read_index(cuSeqlens, i), least = i == 0 ? 0 : metal::max(0, read_index(cuSeqlens, i - 1));
    const bool right = at >= least && uint(at) <= tokens && (i > 0 || at == 0) && (i < sequences || uint(at) == tokens);
    if (!right) wrong = i, found = uint(at);
  }
  const uint first = metal::simd_min(wrong);
  if (first == ~0u) return true;
  if (wrong == first) report_fault(fault, code, first, found);
  return false;
}

// Whether no sequence is to give back more than `most` tokens; a negative number is a large one. To be asked by whole
// simdgroups; the first wrong number is reported.
METAL_FUNC bool rejected_right(device const Index* rejected, uint sequences, uint most, device MlxtsFault* fault,
                               uint code, uint lane) {
  uint wrong = ~0u, found = 0;
  for (uint s = lane; s < sequences && wrong == ~0u; s += kSimd) {
    const uint count = uint(read_index(rejected, s));
    if (count > most) wrong = s, found = count;
  }
  const uint first = metal::simd_min(wrong);
  if (first == ~0u) return true;
  if (wrong == first) report_fault(fault, code, found, first);
  return false;
}

// An entry of cuSeqlens, 0 … `tokens`.
METAL_FUNC uint cut_at(device const Index* cuSeqlens, uint i, uint tokens) {
  return metal::min(uint(read_index(cuSeqlens, i)), tokens);
}

METAL_FUNC Sequence sequence_at(device const Index* cuSeqlens, bool packed, uint sequence, uint tokens) {
  if (!packed) return {sequence * tokens, tokens};
  const uint begin = cut_at(cuSeqlens, sequence, tokens), end = cut_at(cuSeqlens, sequence + 1, tokens);
  return {begin, metal::max(begin, end) - begin};
}

// Tokens of a sequence that go by whole chunks so that at least `last` are left; all of them if none are to be left.
METAL_FUNC uint chunked_tokens(uint tokens, uint chunkLength, uint last) {
  if (last == 0) return tokens;
  return tokens > last ? (tokens - last) / chunkLength * chunkLength : 0;
}

// The slot of the first chunk of a packed sequence, of all slots of the call: see ChunkDims.
METAL_FUNC uint packed_slot(uint sequence, uint begin, uint chunkLength) { return begin / chunkLength + sequence; }

// A slot's sequence and which of its chunks it is; the chunk may lie beyond the sequence's end.
struct Slot {
  uint sequence, chunk;
};

METAL_FUNC Slot slot_at(device const Index* cuSeqlens, bool packed, uint slot, uint sequences, uint tokens, uint chunks,
                        uint chunkLength) {
  if (!packed) return {slot / chunks, slot % chunks};
  uint low = 0, high = sequences;  // the last sequence that begins at this slot or before it
  uint first = 0;                  // its own first slot, as it was when it was found
  while (high - low > 1) {
    const uint middle = (low + high) / 2;
    const uint itsFirst = packed_slot(middle, cut_at(cuSeqlens, middle, tokens), chunkLength);
    if (itsFirst <= slot)
      low = middle, first = itsFirst;
    else
      high = middle;
  }
  return {low, slot - first};
}

// The place of a sequence's first snapshot; `own` are the sequence's tokens, and there is room for their snapshots.
METAL_FUNC uint first_snapshot(device const Index* cuSeqlens, bool packed, uint sequence, uint own, uint tokens,
                               uint every) {
  if (!packed) return sequence * (tokens / every);
  uint count = 0;
  for (uint s = 0; s < sequence; ++s) count += sequence_at(cuSeqlens, true, s, tokens).tokens / every;
  return metal::min(count, tokens / every - own / every);
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
