// Who made the processor, which it is, and what its user asks of it instead.
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

// Whether this is one of AMD's Zen 3: of family 19h, which Zen 4 shares, these models.
inline bool is_zen3() {
  unsigned a, b, c, d;
  if (!made_by_amd() || !__get_cpuid(1, &a, &b, &c, &d)) return false;
  const unsigned family = (a >> 8 & 0xf) + (a >> 20 & 0xff), model = (a >> 12 & 0xf0) | (a >> 4 & 0xf);
  return family == 0x19 && (model < 0x10 || (model >= 0x20 && model < 0x60));
}
#endif

// Whether an environment variable is other than 0; `otherwise` where it is not set, or empty.
inline bool asked_or(const char* variable, bool otherwise) {
  const char* wanted = getenv(variable);
  return wanted && *wanted ? *wanted != '0' : otherwise;
}

}  // namespace mlxts
