// Generated from the declaration of argmax; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define ARGMAX_LOGITS 0  // read
#define ARGMAX_IDS 1  // write
#define ARGMAX_PARAMS 2
#ifdef __METAL_VERSION__
#define ARGMAX_PIECE 2048
#else
#define ARGMAX_PIECE 0
#endif

struct ArgmaxParams {
  uint32_t dim;
#ifdef __METAL_VERSION__
  uint32_t scratch[1];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(ArgmaxParams) == 8, "ArgmaxParams must match the declaration of argmax");
#else
static_assert(sizeof(ArgmaxParams) == 4, "ArgmaxParams must match the declaration of argmax");
#endif
#ifdef __METAL_VERSION__
struct ArgmaxScratch {
  threadgroup uint* largest;
};
inline ArgmaxScratch scratch_of(threadgroup uchar* memory, constant ArgmaxParams& p) {
  return {
      (threadgroup uint*)(memory + p.scratch[0]),
  };
}
#endif
