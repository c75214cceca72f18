// Generated from the declaration of argmax_pieces; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define ARGMAX_PIECES_LOGITS 0  // read
#define ARGMAX_PIECES_LARGEST 1  // write
#define ARGMAX_PIECES_PARAMS 2
#ifdef __METAL_VERSION__
#define ARGMAX_PIECES_PIECE 2048
#endif

struct ArgmaxPiecesParams {
  uint32_t dim;
#ifdef __METAL_VERSION__
  uint32_t scratch[1];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(ArgmaxPiecesParams) == 8, "ArgmaxPiecesParams must match the declaration of argmax_pieces");
#else
static_assert(sizeof(ArgmaxPiecesParams) == 4, "ArgmaxPiecesParams must match the declaration of argmax_pieces");
#endif
#ifdef __METAL_VERSION__
struct ArgmaxPiecesScratch {
  threadgroup uint* simdgroups;
};
inline ArgmaxPiecesScratch scratch_of(threadgroup uchar* memory, constant ArgmaxPiecesParams& p) {
  return {
      (threadgroup uint*)(memory + p.scratch[0]),
  };
}
#endif
