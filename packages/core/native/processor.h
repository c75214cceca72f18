// Who made the processor.
#pragma once
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace mlxts {

#if defined(__x86_64__)
inline bool made_by(unsigned signature) {
  unsigned most, b = 0, c, d;
  return __get_cpuid(0, &most, &b, &c, &d) && b == signature;
}
inline bool made_by_intel() { return made_by(signature_INTEL_ebx); }
inline bool made_by_amd() { return made_by(signature_AMD_ebx); }
#endif

}  // namespace mlxts
