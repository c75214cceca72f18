// The rows of a cache: where those of new tokens go, and how many are valid.
#pragma once
#include "portable.h"

namespace mlxts {

// Whether every sequence has room for its new rows: they begin at row `last` at most. A start counts `counted` of the new
// rows already. A negative one counts as a large one. The first wrong start is reported, without those it has counted. To
// be asked before anything else, on a GPU by whole simdgroups.
MLXTS_FUNC bool starts_right(Indices start, Count counted, Count batch, Count last, FaultSearch search,
                             uint32_t code) {
  Count wrong = ~Count(0);
  uint32_t found = 0;
  for (Count b = search.begin(); b < batch && wrong == ~Count(0); b += search.step()) {
    const uint32_t at = uint32_t(start.read(b)) - uint32_t(counted);
    if (at > last) wrong = b, found = at;
  }
  return search.none(wrong, code, found, uint32_t(wrong));
}

// The row at which a sequence's new rows begin, 0 … `last`, even if it has changed since it was checked.
MLXTS_FUNC Count start_at(Indices start, Count counted, Count sequence, Count last) {
  const uint32_t at = uint32_t(start.read(sequence)) - uint32_t(counted);
  return at < last ? at : last;
}

// Codes of the two faults of a length: outside the cache, or less than the new rows.
struct LengthFaults {
  uint32_t outside, tooFew;
};

// Whether each sequence has from `least` to `capacity` valid rows; the first wrong length is reported. A negative one
// counts as a large one. To be asked before anything else, on a GPU by whole simdgroups.
MLXTS_FUNC bool lengths_right(Indices lengths, Count batch, Count least, Count capacity, FaultSearch search,
                              LengthFaults codes) {
  Count wrong = ~Count(0);
  uint32_t found = 0;
  for (Count b = search.begin(); b < batch && wrong == ~Count(0); b += search.step()) {
    const uint32_t length = uint32_t(lengths.read(b));
    if (length > capacity || length < least) wrong = b, found = length;
  }
  return search.none(wrong, found > capacity ? codes.outside : codes.tooFew, found, uint32_t(wrong));
}

// A sequence's valid rows, `least` … `capacity`, even if the number has changed since it was checked.
MLXTS_FUNC Count length_at(Indices lengths, Count sequence, Count least, Count capacity) {
  const uint32_t length = uint32_t(lengths.read(sequence));
  return length < least ? least : length < capacity ? length : capacity;
}

}  // namespace mlxts
