// Where the sequences of a call, their chunks and their snapshots lie, for the kernels on CPUs and GPUs. Sequences lie
// side by side in rows of `tokens`, or cuSeqlens cuts one row into them: they are packed.
#pragma once
#include "portable.h"

namespace mlxts {

struct Sequence {
  Count begin, tokens;
};

// Whether cuSeqlens begins with 0, does not decrease and ends with `tokens`; the first entry that is wrong is reported.
// To be asked before anything else, on a GPU by whole simdgroups. The functions below read cuSeqlens again, and what
// they return lies within the tokens even if it has changed since.
MLXTS_FUNC bool packed_right(Indices cu_seqlens, Count sequences, Count tokens, FaultSearch search, uint32_t code) {
  if (!cu_seqlens) return true;
  Count wrong = ~Count(0);
  int32_t found = 0;
  for (Count i = search.begin(); i <= sequences && wrong == ~Count(0); i += search.step()) {
    const int32_t at = cu_seqlens.read(i), before = i == 0 ? 0 : cu_seqlens.read(i - 1);
    const bool ascends = at >= 0 && at >= before && Count(at) <= tokens;
    const bool right = ascends && (i > 0 || at == 0) && (i < sequences || Count(at) == tokens);
    if (!right) wrong = i, found = at;
  }
  return search.none(wrong, code, uint32_t(wrong), uint32_t(found));
}

// Whether no sequence is to give back more than `most` tokens; a negative number counts as a large one. The first wrong
// number is reported. To be asked on a GPU by whole simdgroups.
MLXTS_FUNC bool rejected_right(Indices rejected, Count sequences, Count most, FaultSearch search, uint32_t code) {
  Count wrong = ~Count(0);
  uint32_t found = 0;
  for (Count s = search.begin(); s < sequences && wrong == ~Count(0); s += search.step()) {
    const uint32_t count = uint32_t(rejected.read(s));
    if (count > most) wrong = s, found = count;
  }
  return search.none(wrong, code, found, uint32_t(wrong));
}

// How many tokens a sequence gives back, 0 … `most`.
MLXTS_FUNC Count rejected_at(Indices rejected, Count sequence, Count most) {
  const uint32_t count = uint32_t(rejected.read(sequence));
  return count < most ? count : most;
}

// An entry of cuSeqlens, 0 … `tokens`.
MLXTS_FUNC Count cut_at(Indices cu_seqlens, Count i, Count tokens) {
  const uint32_t at = uint32_t(cu_seqlens.read(i));
  return at < tokens ? at : tokens;
}

MLXTS_FUNC Sequence sequence_at(Indices cu_seqlens, Count sequence, Count tokens) {
  if (!cu_seqlens) return {sequence * tokens, tokens};
  const Count begin = cut_at(cu_seqlens, sequence, tokens), end = cut_at(cu_seqlens, sequence + 1, tokens);
  return {begin, end > begin ? end - begin : 0};
}

// Tokens of a sequence that the chunk kernels compute if they leave its last ones, `last` or a few more, to the
// recurrent kernel: whole chunks. All of them if `last` is 0.
MLXTS_FUNC Count chunked_tokens(Count tokens, Count chunk_length, Count last) {
  if (last == 0) return tokens;
  return tokens > last ? (tokens - last) / chunk_length * chunk_length : 0;
}

MLXTS_FUNC Count chunks_of(Count tokens, Count chunk_length) { return (tokens + chunk_length - 1) / chunk_length; }

// Tokens of a sequence's chunk; 0 beyond its end.
MLXTS_FUNC Count chunk_rows(Count tokens, Count chunk, Count chunk_length) {
  const Count begin = chunk * chunk_length;
  if (begin >= tokens) return 0;
  return tokens - begin < chunk_length ? tokens - begin : chunk_length;
}

// Slots of chunks in a row of tokens: enough for its chunks however it is cut. See ChunkDims.
MLXTS_FUNC Count slots_of(bool packed, Count sequences, Count tokens, Count chunk_length) {
  return packed ? tokens / chunk_length + sequences : chunks_of(tokens, chunk_length);
}

// The slot of a packed sequence's first chunk.
MLXTS_FUNC Count packed_slot(Count sequence, Count begin, Count chunk_length) {
  return begin / chunk_length + sequence;
}

// The slot of a sequence's first chunk, of all slots of the call.
MLXTS_FUNC Count first_slot(bool packed, Count sequence, Count begin, Count tokens, Count chunk_length) {
  return packed ? packed_slot(sequence, begin, chunk_length) : sequence * chunks_of(tokens, chunk_length);
}

// A slot's sequence and which of its chunks it is; the chunk may lie beyond the sequence's end.
struct Slot {
  Count sequence, chunk;
};

// `slots` are those of a row of tokens.
MLXTS_FUNC Slot slot_at(Indices cu_seqlens, Count slot, Count sequences, Count tokens, Count slots,
                        Count chunk_length) {
  if (!cu_seqlens) return {slot / slots, slot % slots};
  Count low = 0, high = sequences;  // the last sequence that begins at this slot or before it
  Count first = 0;                  // its own first slot, as it was when it was found
  while (high - low > 1) {
    const Count middle = (low + high) / 2;
    const Count its_first = packed_slot(middle, cut_at(cu_seqlens, middle, tokens), chunk_length);
    if (its_first <= slot)
      low = middle, first = its_first;
    else
      high = middle;
  }
  return {low, slot - first};
}

// The place of a sequence's first snapshot; `own` are the sequence's tokens, and there is room for their snapshots.
MLXTS_FUNC Count first_snapshot(Indices cu_seqlens, Count sequence, Count own, Count tokens, Count every) {
  if (!cu_seqlens) return sequence * (tokens / every);
  Count count = 0;
  for (Count s = 0; s < sequence; ++s) count += sequence_at(cu_seqlens, s, tokens).tokens / every;
  const Count most = tokens / every - own / every;
  return count < most ? count : most;
}

// The gate that keeps everything: ln(decay) is 0, or the decay itself, which a factor of 0 stands for, is 1.
MLXTS_FUNC float neutral_gate(float factor) { return factor != 0.0f ? 0.0f : 1.0f; }

MLXTS_FUNC Count key_head_of(Count head, Count heads_per_key, Count key_heads) {
  return head / heads_per_key % key_heads;
}

}  // namespace mlxts
