// Gathered products: a pair is a matrix of x and the matrix of a stack that an index has chosen for it. The first
// threadgroup checks all index tensors before it does anything else; what the others read of them is bounded, so that
// nobody who writes the tensors meanwhile gets an address out of range. C++ and Metal both compile this.
#pragma once
#include "portable.h"

namespace mlxts {

// Codes of the faults that gathered_rows.ts declares.
struct GatherFaults {
  uint32_t rhsIndices, lhsIndices, offsets, order;
};

// ELSEWHERE of gathered_rows.ts: what a tensor of starts has for a matrix that the weight does not hold.
MLXTS_CONSTANT uint32_t kElsewhere = 0xffffffff;

// Whether all numbers are below `end`, or the one that is allowed besides; the first that is not is reported. A negative
// one counts as a large one.
template <typename Search>
MLXTS_FUNC bool indices_right(Indices indices, Count count, Count end, Search search, uint32_t code,
                              uint32_t allowed = 0) {
  Count wrong = ~Count(0);
  uint32_t found = 0;
  for (Count i = search.begin(); i < count && wrong == ~Count(0); i += search.step()) {
    const uint32_t index = uint32_t(indices.read(i));
    if (index >= end && index != allowed) wrong = i, found = index;
  }
  return search.none(wrong, code, found, uint32_t(wrong));
}

// Which matrices each pair has. P are params with the fields of GATHERED_PARAMS.
template <typename P, typename Search = FaultSearch>
struct GatheredPairs {
  MLXTS_PARAMS P& p;
  Indices rhs, lhs;

  // Whether all indices are right. To be asked by the first threadgroup, on a GPU by a whole simdgroup of it, or by all
  // of it where Search is ThreadgroupFaultSearch.
  MLXTS_FUNC bool right(Search search, GatherFaults codes) const {
    return indices_right(rhs, p.rhsCount, p.matrices, search, codes.rhsIndices) &&
           (!lhs || indices_right(lhs, p.lhsCount, p.lefts, search, codes.lhsIndices));
  }

  // The matrix of the stack, 0 … matrices − 1.
  MLXTS_FUNC Count matrix(Count pair) const {
    return below(uint32_t(rhs.read(at(pair, p.right0, p.right1, p.right2))), p.matrices);
  }
  // The matrix of x, 0 … lefts − 1.
  MLXTS_FUNC Count left(Count pair) const {
    const Count place = at(pair, p.left0, p.left1, p.left2);
    return lhs ? below(uint32_t(lhs.read(place)), p.lefts) : place;
  }

 private:
  MLXTS_FUNC static Count below(uint32_t index, Count end) { return index < end ? index : end - 1; }
  MLXTS_FUNC Count at(Count pair, Count step0, Count step1, Count step2) const {
    return pair % p.size0 * step0 + pair / p.size0 % p.size1 * step1 + pair / p.size0 / p.size1 * step2;
  }
};

// Rows, one after the other, that one matrix multiplies: the places first … first + count − 1.
struct GatheredRows {
  Count matrix, first, count;
};

// A row of x, counted over all its matrices, and the row of the output that it becomes.
struct GatheredRow {
  Count x, out;
};

// The rows of all products, matrix by matrix: the pairs that have chosen matrix e are order[offsets[e]] …
// order[offsets[e + 1] − 1], ascending, with one row each. Without an order, pair after pair, with p.m rows each.
template <typename P, typename Search = FaultSearch>
struct GatheredOrder {
  GatheredPairs<P, Search> pairs;
  Indices order, offsets;

  // As GatheredPairs::right. Every place then has a row of its own.
  MLXTS_FUNC bool right(Search search, GatherFaults codes) const {
    return pairs.right(search, codes) &&
           (!order || (offsets_right(search, codes.offsets) && order_right(search, codes.order)));
  }

  // The rows of a slot, `most` of them at most; there may be none. In an order, matrix e has the slots from
  // floor(offsets[e] / most) + e on: that is ascending, leaves room for all rows of each matrix, and is known before
  // anybody has counted them.
  MLXTS_FUNC GatheredRows rows(Count slot, Count most) const {
    if (!order) return rows_of_pair(slot, most);
    Count matrix = 0;
    for (Count end = pairs.p.matrices; end - matrix > 1;) {
      const Count middle = (matrix + end) / 2;
      if (offset(middle) / most + middle <= slot)
        matrix = middle;
      else
        end = middle;
    }
    return rows_of_matrix(matrix, slot, most);
  }

#ifdef __METAL_VERSION__
  // The same by a simdgroup, whose lanes look at 32 matrices at a time.
  METAL_FUNC GatheredRows rows(Count slot, Count most, uint lane) const {
    if (!order) return rows_of_pair(slot, most);
    Count matrix = 0;
    for (Count left = pairs.p.matrices; left > 1;) {
      const Count step = (left + kSimd - 1) / kSimd, own = lane * step;
      const bool before = own < left && (own == 0 || offset(matrix + own) / most + matrix + own <= slot);
      const Count last = (metal::simd_sum(before ? 1u : 0u) - 1) * step;
      matrix += last;
      left = left - last < step ? left - last : step;
    }
    return rows_of_matrix(matrix, slot, most);
  }
#endif

  // The row at a place.
  MLXTS_FUNC GatheredRow row(Count place) const {
    if (order) {
      const Count own = pair(place);
      return {pairs.left(own), own};
    }
    const Count m = pairs.p.m;
    return {pairs.left(place / m) * m + place % m, place};
  }

  // The pair at a place of the order, 0 … pairs − 1.
  MLXTS_FUNC Count pair(Count place) const {
    const uint32_t pair = uint32_t(order.read(place));
    return pair < pairs.p.pairs ? pair : pairs.p.pairs - 1;
  }

  // What has rows of its own: matrices, or without an order pairs. How many there are, and the rows of one.
  MLXTS_FUNC Count owners() const { return order ? pairs.p.matrices : pairs.p.pairs; }
  MLXTS_FUNC GatheredRows rows_of(Count owner) const {
    if (!order) return {pairs.matrix(owner), owner * pairs.p.m, pairs.p.m};
    const Count begin = offset(owner), end = offset(owner + 1);
    return {owner, begin, end > begin ? end - begin : 0};
  }

 private:
  MLXTS_FUNC GatheredRows rows_of_pair(Count slot, Count most) const {
    const Count m = pairs.p.m, slots = (m + most - 1) / most;
    const Count own = slot / slots, first = slot % slots * most;
    return {pairs.matrix(own), own * m + first, m - first < most ? m - first : most};
  }

  // The rows of a slot that the matrix has, if any.
  MLXTS_FUNC GatheredRows rows_of_matrix(Count matrix, Count slot, Count most) const {
    const Count begin = offset(matrix), end = offset(matrix + 1), slot0 = begin / most + matrix;
    const Count first = begin + (slot - slot0) * most;
    if (slot < slot0 || first >= end) return {matrix, 0, 0};
    return {matrix, first, end - first < most ? end - first : most};
  }

  // Where the rows of a matrix begin, 0 … pairs.
  MLXTS_FUNC Count offset(Count matrix) const {
    const uint32_t offset = uint32_t(offsets.read(matrix));
    return offset < pairs.p.pairs ? offset : pairs.p.pairs;
  }

  MLXTS_FUNC bool offsets_right(Search search, uint32_t code) const {
    const Count last = pairs.p.matrices;
    Count wrong = ~Count(0);
    uint32_t found = 0;
    for (Count i = search.begin(); i <= last && wrong == ~Count(0); i += search.step()) {
      const uint32_t offset = uint32_t(offsets.read(i)), least = i == 0 ? 0 : uint32_t(offsets.read(i - 1));
      const uint32_t most = i == 0 ? 0 : pairs.p.pairs;
      if (offset < least || offset > most || (i == last && offset != most)) wrong = i, found = offset;
    }
    return search.none(wrong, code, found, uint32_t(wrong));
  }

  MLXTS_FUNC bool order_right(Search search, uint32_t code) const {
    Count wrong = ~Count(0);
    uint32_t found = 0;
    for (Count i = search.begin(); i < pairs.p.pairs && wrong == ~Count(0); i += search.step()) {
      const uint32_t pair = uint32_t(order.read(i));
      if (!belongs(pair, i)) wrong = i, found = pair;
    }
    return search.none(wrong, code, found, uint32_t(wrong));
  }
  // Whether a place among those of the matrix that the pair has chosen has this pair, behind lesser ones.
  MLXTS_FUNC bool belongs(uint32_t pair, Count place) const {
    if (pair >= pairs.p.pairs) return false;
    const Count matrix = pairs.matrix(pair), begin = offset(matrix), end = offset(matrix + 1);
    if (place < begin || place >= end) return false;
    return place == begin || uint32_t(order.read(place - 1)) < pair;
  }
};

#ifdef __METAL_VERSION__
// Lists the rows of slot number `number` in tables of a threadgroup: slot[0] becomes its matrix, slot[1] how many rows it
// has, `most` at most; xRows and outRows become these rows of x and of the output. Nobody reads an index again. `slot`
// has three elements. All threads call this, as many as `most` at least; it ends with a barrier.
template <typename P, typename Search>
METAL_FUNC void list_rows(thread const GatheredOrder<P, Search>& ordered, uint number, uint most,
                          threadgroup uint* xRows, threadgroup uint* outRows, threadgroup uint* slot, uint index) {
  if (index < kSimd) {
    const GatheredRows rows = ordered.rows(number, most, index);
    if (index == 0) {
      slot[0] = rows.matrix;
      slot[1] = rows.count;
      slot[2] = rows.first;
    }
  }
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  if (index < slot[1]) {
    const GatheredRow row = ordered.row(slot[2] + index);
    xRows[index] = row.x;
    outRows[index] = row.out;
  }
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
}
#else
// Rows of one slot, and blocks of the matrix's rows that multiply them: first … last − 1.
struct SlotPart {
  GatheredRows rows;
  uint64_t first, last;
};

// What a thread multiplies that was given a range of a launch's threadgroups [blocks, slots]. There are slots for every
// order: with few matrices chosen most are empty, so a range of them may be all the work or none. Hence a range stands
// for its share of the work: a part of the threadgroups for the same part of all rows.
template <typename P>
class SlotParts {
 public:
  SlotParts(const Launch& l, const GatheredOrder<P>& ordered, uint32_t most)
      : ordered_(ordered), most_(most), blocks_(l.threadgroups[0]) {
    uint64_t work = 0;
    for (Count i = 0; i < ordered.owners(); ++i) {
      const Count rows = ordered.rows_of(i).count;
      work += rows + (rows + most - 1) / most * kWorkOfDecoding;
    }
    const uint64_t groups = blocks_ * l.threadgroups[1];
    const auto share = [&](uint64_t group) {
      const uint64_t all = work * blocks_;
      return group == groups ? all : uint64_t(double(all) * double(group) / double(groups));
    };
    begin_ = share(l.begin);
    end_ = share(l.end);
  }

  // Whether there is another part, and that part.
  bool next(SlotPart& part) {
    while (left_.count > 0 || (owner_ < ordered_.owners() && before_ < end_)) {
      if (left_.count == 0) {
        left_ = ordered_.rows_of(owner_++);
        continue;
      }
      const Count count = left_.count < most_ ? left_.count : most_;
      const uint64_t work = count + kWorkOfDecoding;
      part = {{left_.matrix, left_.first, count}, blocks_before(begin_, work), blocks_before(end_, work)};
      left_.first += count;
      left_.count -= count;
      before_ += work * blocks_;
      if (part.first < part.last) return true;
    }
    return false;
  }

 private:
  // Decoding or packing a block of a matrix takes about as long as multiplying so many rows.
  static constexpr uint64_t kWorkOfDecoding = 8;

  // Blocks of the next slot that begin before `end`.
  uint64_t blocks_before(uint64_t end, uint64_t work) const {
    const uint64_t blocks = end > before_ ? (end - before_ + work - 1) / work : 0;
    return blocks < blocks_ ? blocks : blocks_;
  }

  const GatheredOrder<P> ordered_;
  const Count most_;
  const uint64_t blocks_;
  uint64_t begin_, end_;
  Count owner_ = 0;
  GatheredRows left_{};
  uint64_t before_ = 0;  // work of the slots before the next one
};
#endif

}  // namespace mlxts
