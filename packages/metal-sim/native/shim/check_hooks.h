// Where `-fsanitize=thread` instrumentation calls: every access goes to the engine, nothing to a sanitizer runtime.
#pragma once

#define METAL_SIM_HOOK                                                                              \
  extern "C" __attribute__((visibility("hidden"), used, nodebug, disable_sanitizer_instrumentation, \
                            no_sanitize("undefined")))

namespace metal_sim {
METAL_SIM_INLINE void see(const volatile void* at, size_t bytes, uint32_t flags, const void* pc) {
  // Most accesses are to the thread's own variables.
  if (on_stacks(at)) return;
  const Thread& self = *current();
  self.host->access(self, at, uint32_t(bytes), flags, pc);
}
}  // namespace metal_sim

#define METAL_SIM_SEE(at, bytes, flags) metal_sim::see(at, bytes, flags, __builtin_return_address(0))
#define METAL_SIM_ACCESS(name, bytes, flags) \
  METAL_SIM_HOOK void __tsan_##name##bytes(void* at) { METAL_SIM_SEE(at, bytes, flags); }
#define METAL_SIM_HOOKS(bytes)                              \
  METAL_SIM_ACCESS(read, bytes, metal_sim::kRead)           \
  METAL_SIM_ACCESS(write, bytes, metal_sim::kWrite)         \
  METAL_SIM_ACCESS(unaligned_read, bytes, metal_sim::kRead) \
  METAL_SIM_ACCESS(unaligned_write, bytes, metal_sim::kWrite)
METAL_SIM_HOOKS(1)
METAL_SIM_HOOKS(2)
METAL_SIM_HOOKS(4)
METAL_SIM_HOOKS(8)
METAL_SIM_HOOKS(16)

METAL_SIM_HOOK void __tsan_init() {}
METAL_SIM_HOOK void __tsan_vptr_update(void**, void*) {}
METAL_SIM_HOOK void __tsan_vptr_read(void**) {}
METAL_SIM_HOOK void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  METAL_SIM_SEE(from, bytes, 0);
  METAL_SIM_SEE(to, bytes, metal_sim::kWrite);
  return __builtin_memcpy(to, from, bytes);
}
METAL_SIM_HOOK void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  METAL_SIM_SEE(from, bytes, 0);
  METAL_SIM_SEE(to, bytes, metal_sim::kWrite);
  return __builtin_memmove(to, from, bytes);
}
METAL_SIM_HOOK void* __tsan_memset(void* to, int value, size_t bytes) {
  METAL_SIM_SEE(to, bytes, metal_sim::kWrite);
  return __builtin_memset(to, value, bytes);
}

namespace metal_sim {
/** The head of what the compiler's undefined-behavior checks pass: where they stand. */
struct CheckedPlace {
  const char* file;
  uint32_t line;
  uint32_t column;
};
inline __attribute__((nodebug, disable_sanitizer_instrumentation)) void undefined(Undefined kind, void* data,
                                                                                  uint64_t value) {
  const CheckedPlace* place = static_cast<const CheckedPlace*>(data);
  current()->host->undefined(kind, Site{place->file, place->line, ""}, value);
}
}  // namespace metal_sim

METAL_SIM_HOOK void __ubsan_handle_out_of_bounds(void* data, uintptr_t index) {
  metal_sim::undefined(metal_sim::Undefined::kIndex, data, index);
}
METAL_SIM_HOOK void __ubsan_handle_type_mismatch_v1(void* data, uintptr_t pointer) {
  metal_sim::undefined(metal_sim::Undefined::kAlignment, data, pointer);
}
METAL_SIM_HOOK void __ubsan_handle_divrem_overflow(void* data, uintptr_t, uintptr_t) {
  metal_sim::undefined(metal_sim::Undefined::kDivision, data, 0);
}
METAL_SIM_HOOK void __ubsan_handle_shift_out_of_bounds(void* data, uintptr_t, uintptr_t by) {
  metal_sim::undefined(metal_sim::Undefined::kShift, data, by);
}
