// Searches over keyed, weighted elements in the threadgroup's hands: which key is the first at which the running sum,
// in the order of keys, exceeds a target? Eight bits of the key at a time, by a table of sums; sums of integers are the
// same in any order. Two barriers for each table.
#pragma once
#include "metal_kernel.h"

namespace mlxts {

constant constexpr uint kBins = 256, kTable = 2 * kBins;  // low halves of sums, then high halves

// Of four neighbors; a weight of 0 counts for nothing.
struct Four {
  uint4 key, weight;
};

struct Found {
  uint key;
  ulong left;    // of the target, after all smaller keys
  ulong weight;  // of all elements with this key; 0: the whole sum does not exceed the target
};

METAL_FUNC ulong prefix_sum(ulong value, uint lane) {
  for (uint by = 1; by < kSimd; by *= 2) {
    const ulong below = metal::as_type<ulong>(metal::simd_shuffle_up(metal::as_type<uint2>(value), ushort(by)));
    if (lane >= by) value += below;
  }
  return value;
}

METAL_FUNC void add_to(threadgroup uint* table, uint bin, ulong sum) {
  threadgroup metal::atomic_uint* low = (threadgroup metal::atomic_uint*)(table + bin);
  threadgroup metal::atomic_uint* high = (threadgroup metal::atomic_uint*)(table + kBins + bin);
  const uint part = uint(sum), old = metal::atomic_fetch_add_explicit(low, part, metal::memory_order_relaxed);
  const uint above = uint(sum >> 32) + (old + part < part ? 1 : 0);
  if (above > 0) metal::atomic_fetch_add_explicit(high, above, metal::memory_order_relaxed);
}

METAL_FUNC ulong sum_in(threadgroup const uint* table, uint bin) {
  return ulong(table[kBins + bin]) << 32 | table[bin];
}

// What a thread searches, four by four: i = from, from + step, …, below to.
struct Span {
  uint from, to, step;
};

struct Searcher {
  threadgroup uint* tables;  // two, used in turn, and five words for what was found
  uint turn;
  uint index, threads, lane, simdgroup;

  threadgroup uint* table() const { return tables + turn * kTable; }
  threadgroup uint* words() const { return tables + 2 * kTable; }

  // A barrier must follow.
  void clear() const {
    for (uint i = index; i < kTable; i += threads) table()[i] = 0;
  }

  // Adds what has the bits of `found` above the digit at `shift` to the table. Neighbors in one bin go together.
  template <typename Items>
  void count(Items items, Span span, uint found, uint shift) const {
    uint bin = 0;
    ulong sum = 0;
    for (uint i = span.from; i < span.to; i += span.step) {
      const Four four = items.at(i);
      for (uint j = 0; j < 4; ++j) {
        const uint digit = (four.key[j] ^ found) >> shift;
        if (four.weight[j] == 0 || digit >= kBins) continue;
        if (digit != bin && sum > 0) {
          add_to(table(), bin, sum);
          sum = 0;
        }
        bin = digit;
        sum += four.weight[j];
      }
    }
    if (sum > 0) add_to(table(), bin, sum);
  }

  // For one simdgroup, whose lanes have eight bins each: the lane with the bin leaves words, or the last lane none.
  template <typename Goal>
  void search(Found found, uint shift, bool first, Goal goal) const {
    uint bin = kBins / kSimd * lane;
    const uint end = bin + kBins / kSimd;
    ulong mine = 0;
    for (uint i = bin; i < end; ++i) mine += sum_in(table(), i);
    const ulong upto = prefix_sum(mine, lane);
    const uint2 total = metal::simd_broadcast(metal::as_type<uint2>(upto), ushort(kSimd - 1));
    ulong left = first ? goal.target(metal::as_type<ulong>(total)) : found.left;
    if (upto <= left && lane == kSimd - 1) write({0, 0, 0});
    if (upto <= left || left < upto - mine) return;
    left -= upto - mine;
    for (; left >= sum_in(table(), bin); ++bin) left -= sum_in(table(), bin);
    write({found.key | bin << shift, left, sum_in(table(), bin)});
  }

  void write(Found found) const {
    words()[0] = found.key;
    words()[1] = uint(found.left);
    words()[2] = uint(found.left >> 32);
    words()[3] = uint(found.weight);
    words()[4] = uint(found.weight >> 32);
  }

  // Keys have `bits` bits. The same for every thread.
  template <typename Items, typename Goal>
  Found find(Items items, Span span, uint bits, Goal goal) {
    Found found = {0, 0, 0};
    const uint digits = (bits + 7) / 8;
    for (uint digit = digits; digit-- > 0;) {
      count(items, span, found.key, 8 * digit);
      threadgroup_barrier(metal::mem_flags::mem_threadgroup);
      if (simdgroup == 0) search(found, 8 * digit, digit + 1 == digits, goal);
      turn = 1 - turn;
      clear();
      threadgroup_barrier(metal::mem_flags::mem_threadgroup);
      found = {words()[0], ulong(words()[2]) << 32 | words()[1], ulong(words()[4]) << 32 | words()[3]};
      if (found.weight == 0) break;
    }
    return found;
  }
};

}  // namespace mlxts
