// Few queries, first half: a threadgroup has a piece of a key/value head's cache, and a tile of the query rows that
// share the head. It writes the maximum, the denominator and the sums of each row.
#include "metal_pieces.h"

using namespace metal;
using namespace mlxts;

template <typename X, typename C>
kernel void sdpa_pieces(device const X* q [[buffer(SDPA_PIECES_Q)]],
                        device const C* k_cache [[buffer(SDPA_PIECES_K_CACHE)]],
                        device const C* v_cache [[buffer(SDPA_PIECES_V_CACHE)]],
                        device const Index* lengths [[buffer(SDPA_PIECES_LENGTHS)]],
                        device float* partial [[buffer(SDPA_PIECES_PARTIAL)]],
                        constant SdpaPiecesParams& p [[buffer(SDPA_PIECES_PARAMS)]],
                        device MlxtsFault* fault [[buffer(SDPA_PIECES_FAULT)]],
                        threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                        uint3 groups [[threadgroups_per_grid]], uint index [[thread_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const SdpaPiecesScratch scratch = scratch_of(memory, p);
  const uint kv_head = group.y, sequence = group.z;
  const LengthFaults codes = {SDPA_PIECES_FAULT_LENGTH, SDPA_PIECES_FAULT_NEW_ROWS};
  const FaultSearch search = {fault, lane};
  const CheckedLength checked = checked_length(lengths, sequence, p, search, scratch.length, index);
  const QueryRows queries = query_rows(p, sequence, kv_head, checked.length);
  const uint tiles = (queries.rows + SDPA_PIECES_TILE_ROWS - 1) / SDPA_PIECES_TILE_ROWS;
  const uint piece = group.x / tiles, first = group.x % tiles * SDPA_PIECES_TILE_ROWS;
  const uint keys = piece_keys(checked.length, p.mostPieces), begin = piece * keys;
  const uint end = min(checked.length, begin + keys);
  const AttentionTile tile = attention_tile(queries, first, SDPA_PIECES_TILE_ROWS, begin, end, p.scale);
  const ulong cache = cache_row(sequence, kv_head, p.kvHeads, p.capacity, 0) * p.dim;
  const ulong head = ulong(sequence) * p.kvHeads + kv_head;
  device float* to = partial + partial_address(head, piece, groups.x / tiles, first, queries.rows, p.dim);
  if (!waited_for_kernels(checked, tile.end ^ uint(cache) ^ uint(ulong(to)), p, search, codes, index)) return;
  if (begin >= checked.length) return;
  attend_piece(q, k_cache + cache, v_cache + cache, tile, to, scratch, lane, simdgroup);
}

#define SDPA_PIECES(name, X, C) \
  template [[host_name("sdpa_pieces_" name)]] [[kernel]] decltype(sdpa_pieces<X, C>) sdpa_pieces<X, C>;
SDPA_PIECES("f32_f32", float, float)
SDPA_PIECES("f32_f16", float, half)
SDPA_PIECES("f32_bf16", float, bfloat)
SDPA_PIECES("f16_f32", half, float)
SDPA_PIECES("f16_f16", half, half)
SDPA_PIECES("f16_bf16", half, bfloat)
SDPA_PIECES("bf16_f32", bfloat, float)
SDPA_PIECES("bf16_f16", bfloat, half)
SDPA_PIECES("bf16_bf16", bfloat, bfloat)
