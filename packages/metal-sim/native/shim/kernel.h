// Everything that translated text is compiled against. Also gives the module its hooks and its entry table's parts.
#pragma once
#include "atomic.h"
#include "math.h"
#include "matrix.h"
#include "simd.h"
#include "types.h"

namespace metal {
template <typename T, size_t N>
struct array {
  T elements[N];
  METAL_SIM_INLINE constexpr T& operator[](size_t i) { return elements[i]; }
  METAL_SIM_INLINE constexpr const T& operator[](size_t i) const { return elements[i]; }
  METAL_SIM_INLINE constexpr size_t size() const { return N; }
  METAL_SIM_INLINE constexpr bool empty() const { return N == 0; }
  METAL_SIM_INLINE constexpr T& front() { return elements[0]; }
  METAL_SIM_INLINE constexpr const T& front() const { return elements[0]; }
  METAL_SIM_INLINE constexpr T& back() { return elements[N - 1]; }
  METAL_SIM_INLINE constexpr const T& back() const { return elements[N - 1]; }
  METAL_SIM_INLINE constexpr T* data() { return elements; }
  METAL_SIM_INLINE constexpr const T* data() const { return elements; }
};
}  // namespace metal

METAL_SIM_INLINE constexpr half operator""h(long double value) { return half(value); }
METAL_SIM_INLINE constexpr half operator""h(unsigned long long value) { return half(value); }
METAL_SIM_INLINE constexpr bfloat operator"" bf(long double value) { return bfloat(value); }

#if defined(__x86_64__)
// The conversion that the compiler calls where the processor has none: to nearest even, denormals kept.
extern "C" __attribute__((visibility("hidden"), nodebug, used)) inline bfloat __truncsfbf2(float value) {
  const uint32_t bits = as_type<uint32_t>(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return as_type<bfloat>(uint16_t(nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16));
}
#endif

namespace metal_sim {

/** A threadgroup variable: the same storage for every thread of the threadgroup. */
template <typename T, int Declaration>
struct Tag {
  static char key;
};
template <typename T, int Declaration>
char Tag<T, Declaration>::key;
template <typename T, int Declaration>
METAL_SIM_INLINE T& threadgroup_variable(const char* name, METAL_SIM_HERE) {
  return *static_cast<T*>(
      current()->host->threadgroup_variable(&Tag<T, Declaration>::key, sizeof(T), alignof(T), {file, line, name}));
}

/** Becomes whatever pointer the kernel's parameter is. */
struct Pointer {
  void* data;
  template <typename T>
  METAL_SIM_INLINE operator T*() const {
    return static_cast<T*>(data);
  }
};

/** Becomes whatever reference the kernel's parameter is. */
struct Reference {
  void* data;
  template <typename T>
  METAL_SIM_INLINE operator T&() const {
    return *static_cast<T*>(data);
  }
};

/** Becomes an index of one to three components, 32 or 16 bits wide. */
struct Position {
  const uint32_t* at;
  METAL_SIM_INLINE operator uint() const { return at[0]; }
  METAL_SIM_INLINE operator ushort() const { return ushort(at[0]); }
  METAL_SIM_INLINE operator uint2() const { return uint2(at[0], at[1]); }
  METAL_SIM_INLINE operator uint3() const { return uint3(at[0], at[1], at[2]); }
  METAL_SIM_INLINE operator ushort2() const { return ushort2(ushort(at[0]), ushort(at[1])); }
  METAL_SIM_INLINE operator ushort3() const { return ushort3(ushort(at[0]), ushort(at[1]), ushort(at[2])); }
};

/** Becomes an index of 32 or 16 bits. */
struct Index {
  uint32_t value;
  METAL_SIM_INLINE operator uint() const { return value; }
  METAL_SIM_INLINE operator ushort() const { return ushort(value); }
};

template <typename T>
struct Bare {
  typedef T type;
};
template <typename T>
struct Bare<T*> {
  typedef T type;
};
template <typename T>
struct Bare<T&> {
  typedef T type;
};

/** Sizes of what each parameter of a kernel names. */
template <typename F>
struct Parameters;
template <typename... P>
struct Parameters<void(P...)> {
  static constexpr uint32_t kCount = sizeof...(P);
  static constexpr uint32_t kBytes[] = {sizeof(typename Bare<P>::type)..., 0};
  static constexpr uint32_t kAlign[] = {alignof(typename Bare<P>::type)..., 0};
};
template <typename... P>
constexpr uint32_t Parameters<void(P...)>::kBytes[];
template <typename... P>
constexpr uint32_t Parameters<void(P...)>::kAlign[];

}  // namespace metal_sim

#ifdef METAL_SIM_CHECK
#include "check_hooks.h"
#endif
#ifdef METAL_SIM_COVERAGE
#include "coverage_hooks.h"
#else
namespace metal_sim {
inline const CoverageBlock* coverage_blocks(uint32_t* count, const unsigned char** hits) {
  *count = 0;
  *hits = nullptr;
  return nullptr;
}
}  // namespace metal_sim
#endif
