// A search over elements with keys and weights, by a whole threadgroup: in the order of keys, which key is the first
// whose running sum of weights exceeds a target? Eight bits of the key are found at a time, from a table with the sum
// for each of their values. Weights are integers, so the order in which they are added changes nothing. Two barriers for
// each table.
#pragma once
#include "argmax_metal.h"
#include "sample.params.h"

namespace mlxts {

constant constexpr uint kBins = SAMPLE_BINS, kDigitBits = 8;
static_assert(kBins == 1 << kDigitBits, "a table has a sum for each value of a digit");

// Four neighboring elements; one with weight 0 counts for nothing.
struct FourElements {
  uint4 key, weight;
};

struct Found {
  uint key;
  ulong rest;    // of the target, less the weights of all smaller keys
  ulong weight;  // of all elements with this key; 0: the sum of all weights does not exceed the target
};

METAL_FUNC ulong prefix_sum(ulong value, uint lane) {
  for (uint by = 1; by < kSimd; by *= 2) {
    const ulong below = metal::as_type<ulong>(metal::simd_shuffle_up(metal::as_type<uint2>(value), ushort(by)));
    if (lane >= by) value += below;
  }
  return value;
}

// The elements of a thread, four by four: i = from, from + step, …, below to.
struct Span {
  uint from, to, step;
};

struct Searcher {
  SampleScratch scratch;
  uint table;  // 0 or 1: the one in use
  uint index, threads, lane, simdgroup;

  // A barrier must follow.
  void clear() const {
    for (uint bin = index; bin < kBins; bin += threads) {
      scratch.sumsLow[table * kBins + bin] = 0;
      scratch.sumsHigh[table * kBins + bin] = 0;
    }
  }

  void add(uint bin, ulong sum) const {
    threadgroup metal::atomic_uint* low = (threadgroup metal::atomic_uint*)(scratch.sumsLow + table * kBins + bin);
    threadgroup metal::atomic_uint* high = (threadgroup metal::atomic_uint*)(scratch.sumsHigh + table * kBins + bin);
    const uint part = uint(sum), old = metal::atomic_fetch_add_explicit(low, part, metal::memory_order_relaxed);
    const uint carried = uint(sum >> 32) + (old + part < part ? 1 : 0);
    if (carried > 0) metal::atomic_fetch_add_explicit(high, carried, metal::memory_order_relaxed);
  }

  ulong sum_of(uint bin) const {
    return ulong(scratch.sumsHigh[table * kBins + bin]) << 32 | scratch.sumsLow[table * kBins + bin];
  }

  // Adds the weights of a thread's elements whose keys have the bits of `found` above the digit at `shift`. Neighbors
  // with one digit are added up first.
  template <typename Items>
  void count(Items items, Span span, uint found, uint shift) const {
    uint bin = 0;
    ulong sum = 0;
    for (uint i = span.from; i < span.to; i += kAhead * span.step) {
      FourElements ahead[kAhead];
      MLXTS_UNROLL for (uint u = 0; u < kAhead; ++u) {
        const uint at = i + u * span.step;
        if (at < span.to)
          ahead[u] = items.at(at);
        else
          ahead[u].weight = uint4(0);
      }
      MLXTS_UNROLL for (uint u = 0; u < kAhead; ++u) MLXTS_UNROLL for (uint j = 0; j < 4; ++j) {
        const uint digit = (ahead[u].key[j] ^ found) >> shift;
        if (ahead[u].weight[j] == 0 || digit >= kBins) continue;
        if (digit != bin && sum > 0) {
          add(bin, sum);
          sum = 0;
        }
        bin = digit;
        sum += ahead[u].weight[j];
      }
    }
    if (sum > 0) add(bin, sum);
  }

  // For one simdgroup, whose lanes have eight sums each: the lane that has the digit writes what is found; if none has,
  // the last lane writes that.
  template <typename Goal>
  void search(Found found, uint shift, bool first, Goal goal) const {
    uint bin = kBins / kSimd * lane;
    const uint end = bin + kBins / kSimd;
    ulong mine = 0;
    for (uint i = bin; i < end; ++i) mine += sum_of(i);
    const ulong upto = prefix_sum(mine, lane);
    const uint2 total = metal::simd_broadcast(metal::as_type<uint2>(upto), ushort(kSimd - 1));
    ulong rest = first ? goal.target(metal::as_type<ulong>(total)) : found.rest;
    if (upto <= rest && lane == kSimd - 1) write({0, 0, 0});
    if (upto <= rest || rest < upto - mine) return;
    rest -= upto - mine;
    for (; rest >= sum_of(bin); ++bin) rest -= sum_of(bin);
    write({found.key | bin << shift, rest, sum_of(bin)});
  }

  void write(Found found) const {
    *scratch.foundKey = found.key;
    *scratch.foundRest = long(found.rest);
    *scratch.foundWeight = long(found.weight);
  }

  // Keys have `bits` bits. Every thread gets the same.
  template <typename Items, typename Goal>
  Found find(Items items, Span span, uint bits, Goal goal) {
    Found found = {0, 0, 0};
    const uint digits = (bits + kDigitBits - 1) / kDigitBits;
    for (uint digit = digits; digit-- > 0;) {
      count(items, span, found.key, kDigitBits * digit);
      threadgroup_barrier(metal::mem_flags::mem_threadgroup);
      if (simdgroup == 0) search(found, kDigitBits * digit, digit + 1 == digits, goal);
      table = 1 - table;
      clear();
      threadgroup_barrier(metal::mem_flags::mem_threadgroup);
      found = {*scratch.foundKey, ulong(*scratch.foundRest), ulong(*scratch.foundWeight)};
      if (found.weight == 0) break;
    }
    return found;
  }
};

}  // namespace mlxts
