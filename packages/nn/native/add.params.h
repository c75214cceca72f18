// Generated from the declaration of add; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define ADD_A 0  // read
#define ADD_B 1  // read
#define ADD_OUT 2  // write
#define ADD_PARAMS 3
#ifdef __METAL_VERSION__
#define ADD_BLOCK 1024
#else
#define ADD_BLOCK 4096
#endif

struct AddParams {
  uint32_t tail;
};
static_assert(sizeof(AddParams) == 4, "AddParams must match the declaration of add");
