// Where sequences lie, for all kernels of the rule: side by side in rows of `tokens`, or packed into one row that
// cuSeqlens cuts; and what their gates and states are. The same in Metal: sequences_metal.h.
#pragma once
#include "cpu_kernel.h"
#include "simd.h"

namespace mlxts {

struct Sequence {
  size_t begin, tokens;
};

// 0 where cuSeqlens is right: 0, not decreasing, `tokens`; else the failure to return. To be asked before anything else.
// The functions below read it again, and what they give lies within the tokens whatever has become of it.
inline int32_t packed_failure(const Launch& l, const Indices& cu_seqlens, size_t sequences, size_t tokens,
                              uint32_t code) {
  if (!cu_seqlens) return 0;
  int32_t before = 0;
  for (size_t i = 0; i <= sequences; ++i) {
    const int32_t at = cu_seqlens.read(i);
    if (at < before || size_t(at) > tokens || (i == 0 && at != 0) || (i == sequences && size_t(at) != tokens))
      return l.fail(code, uint32_t(i), uint32_t(at));
    before = at;
  }
  return 0;
}

// An entry of cuSeqlens, 0 … `tokens`.
MLXTS_INLINE size_t cut_at(const Indices& cu_seqlens, size_t i, size_t tokens) {
  const uint32_t at = uint32_t(cu_seqlens.read(i));
  return at < tokens ? at : tokens;
}

MLXTS_INLINE Sequence sequence_at(const Indices& cu_seqlens, size_t sequence, size_t tokens) {
  if (!cu_seqlens) return {sequence * tokens, tokens};
  const size_t begin = cut_at(cu_seqlens, sequence, tokens), end = cut_at(cu_seqlens, sequence + 1, tokens);
  return {begin, end > begin ? end - begin : 0};
}

// Tokens of a sequence that go by whole chunks so that at least `last` are left; all of them if none are to be left.
MLXTS_INLINE size_t chunked_tokens(size_t tokens, size_t chunk_length, size_t last) {
  if (last == 0) return tokens;
  return tokens > last ? (tokens - last) / chunk_length * chunk_length : 0;
}

// The slot of the first chunk of a packed sequence, of all slots of the call: see ChunkDims.
MLXTS_INLINE size_t packed_slot(size_t sequence, size_t begin, size_t chunk_length) {
  return begin / chunk_length + sequence;
}

// A slot's sequence and which of its chunks it is; the chunk may lie beyond the sequence's end.
struct Slot {
  size_t sequence, chunk;
};
inline Slot slot_at(const Indices& cu_seqlens, size_t slot, size_t sequences, size_t tokens, size_t chunks,
                    size_t chunk_length) {
  if (!cu_seqlens) return {slot / chunks, slot % chunks};
  size_t low = 0, high = sequences;  // the last sequence that begins at this slot or before it
  size_t first = 0;                  // its own first slot, as it was when it was found
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    const size_t its_first = packed_slot(middle, cut_at(cu_seqlens, middle, tokens), chunk_length);
    if (its_first <= slot)
      low = middle, first = its_first;
    else
      high = middle;
  }
  return {low, slot - first};
}

// The place of a sequence's first snapshot; `own` are the sequence's tokens, and there is room for their snapshots.
inline size_t first_snapshot(const Indices& cu_seqlens, size_t sequence, size_t own, size_t tokens, size_t every) {
  if (!cu_seqlens) return sequence * (tokens / every);
  size_t count = 0;
  for (size_t s = 0; s < sequence; ++s) count += sequence_at(cu_seqlens, s, tokens).tokens / every;
  const size_t most = tokens / every - own / every;
  return count < most ? count : most;
}

// ln(decay) of a gate; a factor of 0: the gate is the decay itself, and 0 becomes what exp() takes to 0.
MLXTS_INLINE float log_decay(float gate, float factor) {
  if (factor != 0) return gate * factor;
  return gate > 0 ? std::fmax(std::log(gate), -104.0f) : -104.0f;
}

// The gate that keeps everything.
MLXTS_INLINE float neutral_gate(float factor) { return factor != 0 ? 0.0f : 1.0f; }

MLXTS_INLINE size_t key_head_of(size_t head, size_t heads_per_key, size_t key_heads) {
  return head / heads_per_key % key_heads;
}

}  // namespace mlxts
