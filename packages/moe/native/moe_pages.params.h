// Generated from the declaration of moe_pages; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define MOE_PAGES_STACK 0  // read
#define MOE_PAGES_STARTS 1  // read?
#define MOE_PAGES_CHOSEN 2  // read
#define MOE_PAGES_RESIDENT 3  // write?
#define MOE_PAGES_PARAMS 4
#define MOE_PAGES_FAULT 5
#define MOE_PAGES_HAS_STARTS 2u
#define MOE_PAGES_HAS_RESIDENT 8u
#define MOE_PAGES_FAULT_START 1
#ifdef __METAL_VERSION__
#define MOE_PAGES_THREADS 64
#endif

struct MoePagesParams {
  uint32_t experts;
  uint32_t expertBytes;
  uint32_t unit;
  uint32_t elements;
  uint32_t evicts;
  uint32_t present;  // a bit for each buffer
};
static_assert(sizeof(MoePagesParams) == 24, "MoePagesParams must match the declaration of moe_pages");
