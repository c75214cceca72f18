// Outputs of a chunk of 64 tokens where warpgroups multiply: a warpgroup has a chunk of a head, a simdgroup a strip of
// its rows. Three threadgroups share a multiprocessor, and wait beside each other.
#pragma once
#include "cuda_wide_chunk.h"
#include "warpgroup_strips_cuda.h"

namespace mlxts {

// Threadgroup memory: queries, then vNew in their place; keys; the state, 128 values by keys, then what is taken away.
struct OutputMemory {
  threadgroup uchar* queries;
  CumulativeGates G;

  METAL_FUNC threadgroup uchar* keys() const thread { return queries + kPanelTile; }
  METAL_FUNC threadgroup uchar* state() const thread { return keys() + kPanelTile; }
};

METAL_FUNC void make_warpgroup_output(OutputTensors<bfloat> m, OutputMemory memory, uint rows, uint index, uint lane,
                                      uint simdgroup) {
  const Strip s = strip_of(simdgroup, lane, rows);
  const bool real = index < rows;
  const float high = real ? m.G.high[index * m.G.stride] : 0.0f;
  const float low = real && m.G.carriesLow ? m.G.low[index * m.G.stride] : 0.0f;
  start_panels(memory.queries, m.q, m.keyStride, rows, m.K, index);
  start_panels(memory.keys(), m.k, m.keyStride, rows, m.K, index);
  machine::copies_end();
  MLXTS_UNROLL for (uint v = 0; v < kWide; v += kWideRows)
      start_panels(memory.state() + v * kPanelRow, m.h + v * m.K, m.K, left_of(m.V, v), m.K, index, kPanelTile);
  machine::copies_end();
  if (index < kWideRows) {
    memory.G.high[index] = high;
    memory.G.low[index] = low;
  }
  machine::copies_wait<1>();
  machine::warpgroup_operands_written();
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  TileLeft<bfloat, kStrip, kWide> queries;
  load_strip(queries, memory.queries, s);
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  start_panels(memory.queries, m.vNew, m.valueStride, rows, m.V, index);
  machine::copies_end();
  if (m.normalized) normalize(queries, m.norm);
  machine::held(queries.blocks[0]);
  TileSum<kStrip, kWideRows> dots;
  start_dots(dots, queries, memory.keys());
  machine::copies_wait<1>();
  machine::warpgroup_operands_written();
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  TileSum<kStrip, kWide> sum;
  start_dots(sum, queries, memory.state(), kPanelTile);
  machine::warpgroup_wait<1>();
  machine::held(dots.blocks[0]);
  TileLeft<bfloat, kStrip, kWideRows> scores;
  decay_scores(scores, dots, memory.G, s);
  float decays[2], factors[2];
  output_factors(decays, factors, m, memory.G, s);
  machine::warpgroup_wait<0>();
  machine::held(sum.blocks[0]);
  machine::held(queries.blocks[0]);
  scale_rows(sum, decays);
  machine::copies_wait<0>();
  machine::warpgroup_operands_written();
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  machine::held(scores.blocks[0]);
  machine::held(sum.blocks[0]);
  machine::warpgroup_begin();
  const ulong values = machine::warpgroup_rows(memory.queries, kPanelBytes);
  MLXTS_UNROLL for (uint j = 0; j < kStrips; ++j)
      machine::warpgroup_bf16_k16_rows(sum.blocks[0], scores.blocks[0][j], values + j * (kStrip * kPanelRow >> 4));
  machine::warpgroup_end();
  machine::warpgroup_wait<0>();
  machine::held(sum.blocks[0]);
  machine::held(scores.blocks[0]);
  scale_outputs(sum, factors);
  threadgroup bfloat* staged = (threadgroup bfloat*)memory.state() + s.first * kWideStride;
  stage_strip(sum, staged);
  simdgroup_barrier(metal::mem_flags::mem_threadgroup);
  take_strip(m.o, staged, m.valueStride, m.V, s);
}

}  // namespace mlxts
