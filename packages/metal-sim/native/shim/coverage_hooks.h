// Where `-fsanitize-coverage` instrumentation keeps its flags: one byte for each basic block, beside the blocks'
// addresses.
#pragma once

namespace metal_sim {
const unsigned char* coverage_hits;
const CoverageBlock* coverage_first;
uint32_t coverage_count;

inline __attribute__((nodebug)) const CoverageBlock* coverage_blocks(uint32_t* count, const unsigned char** hits) {
  *count = coverage_count;
  *hits = coverage_hits;
  return coverage_first;
}
}  // namespace metal_sim

#define METAL_SIM_HOOK extern "C" __attribute__((visibility("hidden"), used, nodebug, no_sanitize("coverage")))
METAL_SIM_HOOK void __sanitizer_cov_bool_flag_init(unsigned char* begin, unsigned char*) {
  metal_sim::coverage_hits = begin;
}
METAL_SIM_HOOK void __sanitizer_cov_pcs_init(const uintptr_t* begin, const uintptr_t* end) {
  metal_sim::coverage_first = reinterpret_cast<const metal_sim::CoverageBlock*>(begin);
  metal_sim::coverage_count = uint32_t((end - begin) / 2);
}
