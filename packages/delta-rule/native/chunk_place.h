// Where the chunks of a call lie, for the stages of the chunk pipeline on CPUs and GPUs.
#pragma once
#include "sequences.h"

namespace mlxts {

// The chunks of one sequence.
struct Chunks {
  Count tokens;  // without the last ones, where those are left to the recurrent kernel
  Count slot;    // of the first chunk, of all slots of the call
};

template <typename Params>
MLXTS_FUNC Chunks chunks_in(MLXTS_PARAMS Params& p, bool packed, Count index, Sequence sequence) {
  return {chunked_tokens(sequence.tokens, p.chunkLength, p.lastTokens),
          first_slot(packed, index, sequence.begin, p.tokens, p.chunkLength)};
}

// A chunk of one head.
struct ChunkPlace {
  Count head, slot;  // of all of the call
  Offset token;      // the first
  Count rows;        // 0 beyond the sequence's end
};

// The chunk in slot `chunk` of the `slots` that a row of tokens has.
template <typename Params>
MLXTS_FUNC ChunkPlace chunk_place(MLXTS_PARAMS Params& p, Indices cu_seqlens, Count chunk, Count slots, Count head,
                                  Count row) {
  Slot at = {row, chunk};
  if (cu_seqlens) at = slot_at(cu_seqlens, chunk, p.sequences, p.tokens, slots, p.chunkLength);
  const Sequence sequence = sequence_at(cu_seqlens, at.sequence, p.tokens);
  const Count tokens = chunked_tokens(sequence.tokens, p.chunkLength, p.lastTokens);
  return {head, row * slots + chunk, Offset(sequence.begin) + at.chunk * p.chunkLength,
          chunk_rows(tokens, at.chunk, p.chunkLength)};
}

}  // namespace mlxts
