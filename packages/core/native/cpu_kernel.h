// The contract between core and a CPU kernel library: plain C, one struct, no N-API.
// A kernel is an extern "C" function named like its Metal twin; core finds it with dlsym.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "fault.h"

#define MLXTS_CPU_ABI 4

struct MlxtsCpuLaunch {
  void* const* buffers;   // in the order of the kernel's declaration; null: optional and absent
  const uint64_t* bytes;  // length of each binding
  const void* params;     // the generated params struct
  uint32_t threadgroups[3];
  uint64_t begin, end;    // linear threadgroup indices to compute: x + X * (y + Y * z)
  void* scratch;          // private to this call, 64-byte aligned; undefined unless kept; `scratch_of` finds its arrays
  uint64_t scratchBytes;  // what the declaration's launch rule asked for
  MlxtsFault* fault;      // written before returning non-zero
  uint32_t scratchKept;   // not 0: scratch holds what an earlier call for this same dispatch has left in it
};

// 0: done. Otherwise `fault` says what is wrong in the data.
typedef int32_t (*MlxtsCpuKernel)(const MlxtsCpuLaunch*);

#ifdef __cplusplus
namespace mlxts {

// Numbers from a buffer that decide addresses or the lengths of loops. Whoever shares the buffer's memory may write them
// while a kernel runs, and a compiler may read a plain variable's memory again: each call of read() is one read, and a
// kernel uses no value but one that it has itself checked.
class Indices {
 public:
  explicit Indices(const int32_t* first) : first_(first) {}
  // Whether there are any: false for an optional buffer that is absent.
  explicit operator bool() const { return first_; }
  int32_t read(size_t i) const { return __atomic_load_n(first_ + i, __ATOMIC_RELAXED); }

 private:
  const int32_t* first_;
};

struct Launch : MlxtsCpuLaunch {
  template <typename T>
  T* buffer(int index) const {
    return static_cast<T*>(buffers[index]);
  }
  Indices indices(int index) const { return Indices(buffer<const int32_t>(index)); }
  template <typename P>
  const P& args() const {
    return *static_cast<const P*>(params);
  }
  int32_t fail(uint32_t code, uint32_t a = 0, uint32_t b = 0, uint32_t c = 0) const {
    *fault = {code, {a, b, c}};
    return 1;
  }
};

template <typename Kernel>
int32_t runKernel(Kernel kernel, const MlxtsCpuLaunch* launch) {
  const Launch& l = *static_cast<const Launch*>(launch);
  if constexpr (__is_same(decltype(kernel(l)), void))
    return kernel(l), 0;
  else
    return kernel(l);
}

}  // namespace mlxts

// Exports a function, taking const mlxts::Launch& and returning void or int32_t, as symbol `name`.
#define MLXTS_KERNEL(name, ...)                                                                        \
  extern "C" __attribute__((visibility("default"))) int32_t name(const MlxtsCpuLaunch* mlxts_launch) { \
    return mlxts::runKernel([](const mlxts::Launch& l) { return __VA_ARGS__(l); }, mlxts_launch);      \
  }
#endif
