// Who made the processor, and what its user asks of it instead.
#pragma once
#include <cstdlib>
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

// Whether an environment variable is other than 0; `otherwise` where it is not set, or empty.
inline bool asked_or(const char* variable, bool otherwise) {
  const char* wanted = getenv(variable);
  return wanted && *wanted ? *wanted != '0' : otherwise;
}

}  // namespace mlxts
