// What a kernel was compiled for, as a number that core compares with the kernel's declaration.
#pragma once
#include <stdint.h>

#define MLXTS_CONTRACT(kernel, number) \
  extern "C" __attribute__((visibility("default"))) uint32_t kernel##_contract() { return number; }
