// How much threadgroup memory a dispatch may take: Metal's limit or, where kernels run as their CUDA translations, that
// of an NVIDIA H100.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace metal_sim {

inline uint32_t max_threadgroup_bytes() {
  const char* translation = std::getenv("MLXTS_METAL_SIM_TRANSLATION");
  return translation && std::string_view(translation) == "cuda" ? 232448 : 32768;
}

}  // namespace metal_sim
