#pragma once
#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

#define FEATURES_IN 0
#define FEATURES_OUT 1
#define FEATURES_PARAMS 2

struct FeaturesParams {
  uint32_t count;
  float scale;
};
static_assert(sizeof(FeaturesParams) == 8, "FeaturesParams");
