// Generated from the declaration of multiply_tiles; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define MULTIPLY_TILES_A 0  // read
#define MULTIPLY_TILES_B 1  // read
#define MULTIPLY_TILES_FACTORS 2  // read
#define MULTIPLY_TILES_ROUNDED 3  // readWrite
#define MULTIPLY_TILES_C 4  // readWrite
#define MULTIPLY_TILES_WRITTEN 5  // readWrite
#define MULTIPLY_TILES_PARAMS 6

struct MultiplyTilesParams {
  uint32_t m;
  uint32_t n;
  uint32_t k;
  uint32_t stride;
  uint32_t triangle;
};
static_assert(sizeof(MultiplyTilesParams) == 20, "MultiplyTilesParams must match the declaration of multiply_tiles");
