// The positions of tokens: one number for each, or one for the first token of each sequence.
#pragma once
#include "portable.h"
#include "rope_yarn.params.h"

namespace mlxts {

struct TokenPositions {
  Indices given;
  Count length, last;  // tokens of a sequence, at most last + 1; the last position that there is
  bool per_token;

  // Numbers that are given, and the largest that one of them may be: tokens behind a sequence's first have positions too.
  MLXTS_FUNC Count count(Count tokens) const { return per_token ? tokens : tokens / length; }
  MLXTS_FUNC Count most() const { return per_token ? last : last + 1 - length; }

  // Whether all are right; the first wrong one is reported. A negative one counts as a large one. To be asked before
  // anything else, on a GPU by whole simdgroups.
  MLXTS_FUNC bool right(Count tokens, FaultSearch search) const {
    Count wrong = ~Count(0);
    uint32_t found = 0;
    for (Count i = search.begin(); i < count(tokens) && wrong == ~Count(0); i += search.step()) {
      const uint32_t position = uint32_t(given.read(i));
      if (position > most()) wrong = i, found = position;
    }
    return search.none(wrong, ROPE_YARN_FAULT_POSITION, found, uint32_t(wrong));
  }

  // The position of a token, 0 … `last`, even if it has changed since it was checked.
  MLXTS_FUNC Count at(Count token) const {
    const uint32_t position = uint32_t(given.read(per_token ? token : token / length));
    return (position < most() ? position : most()) + (per_token ? 0 : token % length);
  }
};

MLXTS_FUNC TokenPositions token_positions(Indices given, MLXTS_PARAMS RopeYarnParams& p) {
  return {given, p.length, Count(p.rows) - 1, p.perToken != 0};
}

}  // namespace mlxts
