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

struct AddParams {
  uint32_t block;
  uint32_t tail;
};
static_assert(sizeof(AddParams) == 8, "AddParams must match the declaration of add");
