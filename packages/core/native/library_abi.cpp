// Compiled into every kernel library, so that core can refuse a library built for another layout of MlxtsCpuLaunch.
#include "cpu_kernel.h"

extern "C" __attribute__((visibility("default"))) int32_t mlxts_cpu_abi() { return MLXTS_CPU_ABI; }
