// chunk_state where warpgroups multiply: one has 64 value rows of the state of a head in registers, or 32 where then
// each of twice as many threadgroups has a multiprocessor; two simdgroups have none of these. What a product leaves
// there is the left operand of the next: S, rounded, and what that left, of S wᵀ; vNewᵀ, with values as rows, of the
// update. w and k lie in threadgroup memory as right operands. A second warpgroup brings the next chunks, and a third
// one takes h and vNew away.
#pragma once
#include "state_head_metal.h"
#include "warpgroup_panels_cuda.h"

namespace mlxts {

constant constexpr uint kWarpgroups = 3, kWarpgroupRows = 64, kWarpgroupKeys = 128, kSlots = 4;
// Registers of a thread that brings or takes, and of one that multiplies.
constant constexpr uint kFewRegisters = 96, kManyRegisters = 240;
// Of a slot: a factor of each token, then the state's; then four gates for each token.
constant constexpr uint kFactors = 2 * kChunk, kGates = 4 * kChunk;
// Bytes from row to row of what is taken away.
constant constexpr uint kStateRow = kWarpgroupKeys * 2 + 16, kValueRow = kWarpgroupRows * 2 + 16;
constant constexpr uint kStateBytes = kWarpgroupRows * kStateRow, kTakenBytes = kStateBytes + kChunk * kValueRow;

// Threadgroup memory: panels of w (two halves of a key), of k and of u in each slot; their factors; and, twice, the
// rounded state [values, keys] and vNew [tokens, values] of a chunk.
struct WarpgroupMemory {
  threadgroup uchar* slots;
  threadgroup float* all_factors;
  threadgroup uchar* taken;

  METAL_FUNC threadgroup uchar* w(uint slot) const thread { return slots + slot * 5 * kPanelBytes; }
  METAL_FUNC threadgroup uchar* k(uint slot) const thread { return w(slot) + 2 * kPanelBytes; }
  METAL_FUNC threadgroup uchar* u(uint slot) const thread { return w(slot) + 4 * kPanelBytes; }
  METAL_FUNC threadgroup float* factors(uint slot) const thread { return all_factors + slot * (kFactors + kGates); }
  METAL_FUNC threadgroup float* gates(uint slot) const thread { return factors(slot) + kFactors; }
  METAL_FUNC threadgroup uchar* state(uint turn) const thread { return taken + turn % 2 * kTakenBytes; }
  METAL_FUNC threadgroup uchar* values(uint turn) const thread { return state(turn) + kStateBytes; }
  // Where all warpgroups meet: the next chunk is there, and the one before has been used.
  METAL_FUNC static void meet() { machine::parts_meet<kWarpgroups * kWarpgroup>(); }
};

METAL_FUNC uint slot_after(uint slot) { return slot + 1 == kSlots ? 0 : slot + 1; }

// Thread `index` of the warpgroup that takes h and vNew away. (Bulk copies of rows do it without registers, but took
// half as long again.)
struct ChunkTaker {
  WarpgroupMemory memory;
  device bfloat *h, *vNew;  // of the next chunk
  uint K, length, u_step, values, tokens, row, piece;  // `values` of the head from the threadgroup's first one on

  METAL_FUNC ChunkTaker(WarpgroupMemory memory, StateHead<bfloat> head, constant ChunkStateParams& p, uint begin,
                        uint index)
      : memory(memory), h(head.h + ulong(begin) * p.keyDim), vNew(head.vNew + begin), K(p.keyDim),
        length(p.chunkLength), u_step(p.heads * p.valueDim), values(metal::min(p.valueDim - begin, p.teams * kRows)),
        tokens(head.tokens), row(index / 16), piece(index % 16) {}

  METAL_FUNC void take(uint turn) {
    const uint count = metal::min(length, tokens), token = row * 2 + piece / 8, value = piece % 8 * 8;
    threadgroup const uchar* from = memory.state(turn) + row * kStateRow + piece * 16;
    threadgroup const uchar* from_values = memory.values(turn) + token * kValueRow + value * 2;
    uint4 states[8], news[4];
    MLXTS_UNROLL for (uint i = 0; i < 8; ++i) states[i] = *(threadgroup const uint4*)(from + 8 * i * kStateRow);
    MLXTS_UNROLL for (uint i = 0; i < 4; ++i) news[i] = *(threadgroup const uint4*)(from_values + 16 * i * kValueRow);
    MLXTS_UNROLL for (uint i = 0; i < 8; ++i) {
      if (row + 8 * i < values && piece * 8 < K) *(device uint4*)(h + (row + 8 * i) * K + piece * 8) = states[i];
    }
    MLXTS_UNROLL for (uint i = 0; i < 4; ++i) {
      const uint at = token + 16 * i;
      if (at < count && value < values) *(device uint4*)(vNew + at * u_step + value) = news[i];
    }
    tokens -= count;
    h += ulong(u_step) * K;
    vNew += ulong(count) * u_step;
  }
  METAL_FUNC void run() {
    WarpgroupMemory::meet();
    for (uint turn = 0; tokens > 0; ++turn) {
      WarpgroupMemory::meet();
      take(turn);
    }
  }
};

// Thread `index` of the warpgroup that brings.
struct ChunkBringer {
  WarpgroupMemory memory;
  StateHead<bfloat> head;  // from the chunk that is brought next
  uint index, K, length, H;
  uint values;  // of the head from the threadgroup's first one on
  uint w_step, k_step, u_step;
  uint row, piece, slot;

  METAL_FUNC ChunkBringer(WarpgroupMemory memory, StateHead<bfloat> from, constant ChunkStateParams& p, uint begin,
                          uint index)
      : memory(memory), head(from), index(index), K(p.keyDim), length(p.chunkLength), H(p.heads),
        values(metal::min(p.valueDim - begin, p.teams * kRows)), w_step(H * K), k_step(p.keyHeads * K),
        u_step(H * p.valueDim), row(index / 8), piece(index % 8), slot(0) {
    head.w += row * w_step + piece * 8;
    head.k += row * k_step + piece * 8;
    head.u += row * u_step + begin + piece * 8;
  }

  // A token's gates, G and GLow, and those of the chunk's last one, copied as the rest: a load would be waited for while
  // all copies before it arrive.
  METAL_FUNC void start_gates(uint count) const {
    if (index >= kChunk) return;
    const uint tokens[2] = {metal::min(index, count - 1) * H, (count - 1) * H};
    threadgroup float* to = memory.gates(slot) + 4 * index;
    MLXTS_UNROLL for (uint i = 0; i < 2; ++i) {
      machine::copy_start<4>(to + 2 * i, head.G.high + tokens[i]);
      machine::copy_start<4>(to + 2 * i + 1, head.G.carriesLow ? head.G.low + tokens[i] : head.G.high,
                             head.G.carriesLow ? 4 : 0);
    }
  }
  // The factors of a chunk that has arrived, with so many tokens.
  METAL_FUNC void store_factors(uint of, uint count) const {
    if (index >= kChunk) return;
    const float4 gates = *(threadgroup const float4*)(memory.gates(of) + 4 * index);
    threadgroup float* factors = memory.factors(of);
    factors[index] = index < count ? metal::precise::exp((gates.z - gates.x) + (gates.w - gates.y)) : 0.0f;
    if (index == 0) factors[kChunk] = exp_of_sum(gates.z, gates.w);
  }
  METAL_FUNC void start() {
    if (head.tokens > 0) {
      const uint count = metal::min(length, head.tokens), at = panel_piece(row, piece);
      const int rows = int(count) - int(row), none = 0;
      const bool first = piece * 8 < K, second = 64 + piece * 8 < K, value = piece * 8 < values;
      start_panel(memory.w(slot) + at, head.w, w_step, first ? rows : none);
      start_panel(memory.w(slot) + kPanelBytes + at, head.w + 64, w_step, second ? rows : none);
      start_panel(memory.k(slot) + at, head.k, k_step, first ? rows : none);
      start_panel(memory.k(slot) + kPanelBytes + at, head.k + 64, k_step, second ? rows : none);
      start_panel(memory.u(slot) + at, head.u, u_step, value ? rows : none);
      start_gates(count);
      head.w += ulong(count) * w_step;
      head.k += ulong(count) * k_step;
      head.u += ulong(count) * u_step;
      head.G = gates_from(head.G, ulong(count) * H);
      head.tokens -= count;
      slot = slot_after(slot);
    }
    machine::copies_end();
  }

  METAL_FUNC void run() {
    uint left = head.tokens, arrived = 0;
    MLXTS_UNROLL for (uint i = 0; i + 1 < kSlots; ++i) start();
#pragma unroll 1
    while (left > 0) {
      const uint count = metal::min(length, left);
      machine::copies_wait<kSlots - 2>();
      store_factors(arrived, count);
      machine::warpgroup_operands_written();
      WarpgroupMemory::meet();
      start();
      left -= count;
      arrived = slot_after(arrived);
    }
    WarpgroupMemory::meet();
  }
};

// A simdgroup of the warpgroup that multiplies: it has 16 value rows.
struct StateMultiplier {
  typedef State<kWarpgroupKeys> Rows;
  typedef Pairs<bfloat> P;

  WarpgroupMemory memory;
  Rows state;
  uint simdgroup, row, matrix;  // of what this lane names for matrices that are loaded or stored

  METAL_FUNC StateMultiplier(WarpgroupMemory memory, uint simdgroup, uint lane)
      : memory(memory), simdgroup(simdgroup), row(lane % 8), matrix(lane / 8) {}

  // The transposed 16 tokens of the simdgroup's values; four matrices as a left operand has them.
  METAL_FUNC uint token(uint t) const { return 16 * t + matrix / 2 * 8 + row; }
  METAL_FUNC uint value_piece() const { return 2 * simdgroup + matrix % 2; }

  METAL_FUNC void use_chunk(uint turn, uint slot, uint pair) {
    float(&s)[kWarpgroupKeys / 8][4] = state.blocks[0];
    float products[kChunk / 8][4];  // S wᵀ
    uint rounded[kWarpgroupKeys / 16][4], rest[kWarpgroupKeys / 16][4], values[kChunk / 16][4], kept[kChunk / 16][4];
    threadgroup const float* factors = memory.factors(slot);
    const float decay = factors[kChunk];
    machine::warpgroup_wait<0>();  // none is under way, but only so the compiler knows it
    machine::held(s);
    const ulong w = machine::warpgroup_operand(memory.w(slot));
    // The second half of S is rounded beside the first one's products.
    constexpr uint kHalf = kWarpgroupKeys / 32;
    MLXTS_UNROLL for (uint half = 0; half < 2 * kHalf; half += kHalf) {
      MLXTS_UNROLL for (uint k = half; k < half + kHalf; ++k) {
        MLXTS_UNROLL for (uint i = 0; i < 4; ++i) {
          thread const float* two = s[2 * k + i / 2] + i % 2 * 2;
          const uint both = P::of(two[0], two[1]);
          rounded[k][i] = both;
          rest[k][i] = P::of(two[0] - P::low(both), two[1] - P::high(both));
        }
        machine::held(rounded[k]);
        machine::held(rest[k]);
      }
      machine::warpgroup_begin();
      MLXTS_UNROLL for (uint k = half; k < half + kHalf; ++k) {
        const ulong at = w + k / 4 * (kPanelBytes >> 4) + k % 4 * 2;
        machine::warpgroup_bf16_k16(products, rounded[k], at, k > 0);
        machine::warpgroup_bf16_k16(products, rest[k], at, true);
      }
      machine::warpgroup_end();
    }
    MLXTS_UNROLL for (uint b = 0; b < kWarpgroupKeys / 8; ++b) MLXTS_UNROLL for (uint e = 0; e < 4; ++e)
        s[b][e] *= decay;
    MLXTS_UNROLL for (uint t = 0; t < kChunk / 16; ++t) {
      uint(&u)[4] = values[t];
      machine::load_matrices_transposed(u[0], u[1], u[2], u[3], memory.u(slot) + panel_piece(token(t), value_piece()));
    }
    // Behind what is read: that is needed first.
    threadgroup uchar* h = memory.state(turn) + (simdgroup * 16 + matrix % 2 * 8 + row) * kStateRow + matrix / 2 * 16;
    MLXTS_UNROLL for (uint k = 0; k < kWarpgroupKeys / 16; ++k) machine::store_matrices(h + k * 32, rounded[k]);
    machine::warpgroup_wait<0>();
    machine::held(products);
    machine::held(rounded);
    machine::held(rest);
    MLXTS_UNROLL for (uint t = 0; t < kChunk / 16; ++t) {
      MLXTS_UNROLL for (uint i = 0; i < 4; ++i) {
        const uint block = 2 * t + i / 2;
        thread const float* two = products[block] + i % 2 * 2;
        const float2 factor = *(threadgroup const float2*)(factors + 8 * block + pair);
        const float low = P::low(values[t][i]) - two[0], high = P::high(values[t][i]) - two[1];
        values[t][i] = P::of(low, high);
        kept[t][i] = P::of(low * factor.x, high * factor.y);
      }
    }
    machine::held(kept);
    machine::held(s);
    machine::warpgroup_begin();
    const ulong k = machine::warpgroup_rows(memory.k(slot), kPanelBytes);
    MLXTS_UNROLL for (uint t = 0; t < kChunk / 16; ++t)
        machine::warpgroup_bf16_k16_rows(s, kept[t], k + t * (16 * kPanelRow >> 4));
    machine::warpgroup_end();
    MLXTS_UNROLL for (uint t = 0; t < kChunk / 16; ++t)
        machine::store_matrices_transposed(memory.values(turn) + token(t) * kValueRow + value_piece() * 16, values[t]);
    machine::warpgroup_wait<0>();
    machine::held(kept);
    machine::held(s);
  }

  METAL_FUNC void run(StateHead<bfloat> head, constant ChunkStateParams& p, uint begin, uint lane) {
    const StatePlace place = state_place(p, simdgroup < p.teams ? begin + kRows * simdgroup : p.valueDim, 0);
    begin_state(state, head, place, p, lane);
    uint slot = 0, done = 0;
#pragma unroll 1
    for (uint turn = 0; done < head.tokens; ++turn) {
      WarpgroupMemory::meet();
      use_chunk(turn, slot, lane % 4 * 2);
      slot = slot_after(slot);
      done += metal::min(p.chunkLength, head.tokens - done);
      keep_state(state, head, done, place, p, lane);
    }
    WarpgroupMemory::meet();
    end_state(state, head, place, p, lane);
  }
};

METAL_FUNC void pass_by_warpgroups(StateHead<bfloat> head, constant ChunkStateParams& p, ChunkStateScratch scratch,
                                   uint part, uint index, uint lane, uint simdgroup) {
  const WarpgroupMemory memory = {scratch.tiles, scratch.state, scratch.values};
  const uint begin = part * p.teams * kRows;
  const uint warpgroup = machine::shuffle(simdgroup, 0) / 4, own = index % kWarpgroup;
  if (warpgroup > 0) {
    machine::fewer_registers<kFewRegisters>();
    if (warpgroup == 1)
      ChunkBringer(memory, head, p, begin, own).run();
    else
      ChunkTaker(memory, head, p, begin, own).run();
    return;
  }
  machine::more_registers<kManyRegisters>();
  StateMultiplier(memory, simdgroup, lane).run(head, p, begin, lane);
}

}  // namespace mlxts
