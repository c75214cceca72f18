// Generated from the declaration of tile_roles; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define TILE_ROLES_A 0  // read
#define TILE_ROLES_B 1  // read
#define TILE_ROLES_C 2  // read
#define TILE_ROLES_FACTORS 3  // read
#define TILE_ROLES_SUMS 4  // write
#define TILE_ROLES_ROWS 5  // write
#define TILE_ROLES_OUT 6  // write
#define TILE_ROLES_PARAMS 7
#ifdef __METAL_VERSION__
#define TILE_ROLES_M 32
#define TILE_ROLES_N 64
#define TILE_ROLES_K 32
#define TILE_ROLES_LAST 16
#endif

struct TileRolesParams {
#ifdef __METAL_VERSION__
  uint32_t scratch[3];  // byte offsets
#else
  uint32_t unused;
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(TileRolesParams) == 12, "TileRolesParams must match the declaration of tile_roles");
#else
static_assert(sizeof(TileRolesParams) == 4, "TileRolesParams must match the declaration of tile_roles");
#endif
#ifdef __METAL_VERSION__
struct TileRolesScratch {
  threadgroup float* a;
  threadgroup float* b;
  threadgroup float* c;
};
inline TileRolesScratch scratch_of(threadgroup uchar* memory, constant TileRolesParams& p) {
  return {
      (threadgroup float*)(memory + p.scratch[0]),
      (threadgroup float*)(memory + p.scratch[1]),
      (threadgroup float*)(memory + p.scratch[2]),
  };
}
#endif
