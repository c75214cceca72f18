// Generated from the declaration of mla_split; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define MLA_SPLIT_Q 0  // read
#define MLA_SPLIT_KV 1  // read
#define MLA_SPLIT_Q_NOPE 2  // write
#define MLA_SPLIT_Q_PE 3  // write
#define MLA_SPLIT_LATENT 4  // write
#define MLA_SPLIT_K_PE 5  // write
#define MLA_SPLIT_PARAMS 6

struct MlaSplitParams {
  uint32_t heads;
  uint32_t nope;
  uint32_t latentDim;
  uint32_t rope;
};
static_assert(sizeof(MlaSplitParams) == 16, "MlaSplitParams must match the declaration of mla_split");
