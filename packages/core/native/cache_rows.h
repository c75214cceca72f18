// The rows of a cache: where those of new tokens go, and how many are valid.
#pragma once
#include "portable.h"

namespace mlxts {

// A number that is wrong, and its place; ~0 for none. On a GPU each lane of a simdgroup has its own.
struct WrongNumber {
  Count place;
  uint32_t number;
};

// The first start that leaves no room for its new rows: they begin at row `last` at most. A start counts `counted` of
// the new rows already. A negative one counts as a large one.
MLXTS_FUNC WrongNumber wrong_start(Indices start, Count counted, Count batch, Count last, FaultSearch search) {
  WrongNumber wrong = {~Count(0), 0};
  for (Count b = search.begin(); b < batch && wrong.place == ~Count(0); b += search.step()) {
    const uint32_t at = uint32_t(start.read(b)) - uint32_t(counted);
    if (at > last) wrong = {b, at};
  }
  return wrong;
}

// Whether every sequence has room for its new rows. The first wrong start is reported, without those it has counted. To
// be asked before anything else, on a GPU by whole simdgroups.
MLXTS_FUNC bool starts_right(Indices start, Count counted, Count batch, Count last, FaultSearch search,
                             uint32_t code) {
  const WrongNumber wrong = wrong_start(start, counted, batch, last, search);
  return search.none(wrong.place, code, wrong.number, uint32_t(wrong.place));
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

// The first sequence that has not from `least` to `capacity` valid rows. A negative number counts as a large one.
MLXTS_FUNC WrongNumber wrong_length(Indices lengths, Count batch, Count least, Count capacity, FaultSearch search) {
  WrongNumber wrong = {~Count(0), 0};
  for (Count b = search.begin(); b < batch && wrong.place == ~Count(0); b += search.step()) {
    const uint32_t length = uint32_t(lengths.read(b));
    if (length > capacity || length < least) wrong = {b, length};
  }
  return wrong;
}

// Reports it, if there is one. Whether there is none.
MLXTS_FUNC bool no_wrong_length(WrongNumber wrong, Count capacity, FaultSearch search, LengthFaults codes) {
  return search.none(wrong.place, wrong.number > capacity ? codes.outside : codes.tooFew, wrong.number,
                     uint32_t(wrong.place));
}

// Both. To be asked before anything else, on a GPU by whole simdgroups.
MLXTS_FUNC bool lengths_right(Indices lengths, Count batch, Count least, Count capacity, FaultSearch search,
                              LengthFaults codes) {
  return no_wrong_length(wrong_length(lengths, batch, least, capacity, search), capacity, search, codes);
}

// A sequence's valid rows, `least` … `capacity`, even if the number has changed since it was checked.
MLXTS_FUNC Count length_at(Indices lengths, Count sequence, Count least, Count capacity) {
  const uint32_t length = uint32_t(lengths.read(sequence));
  return length < least ? least : length < capacity ? length : capacity;
}

}  // namespace mlxts
