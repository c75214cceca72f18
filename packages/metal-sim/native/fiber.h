// One stack for each simulated thread, and the switch between them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "module.h"

#if !defined(METAL_SIM_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define METAL_SIM_UCONTEXT 1
#endif
#ifdef METAL_SIM_UCONTEXT
#include <ucontext.h>
#endif

namespace metal_sim {

/** A place to go on from. */
struct Context {
#ifdef METAL_SIM_UCONTEXT
  ucontext_t saved;
#else
  void* stack_pointer = nullptr;
#endif
};

/** Leaves `from` and goes on at `to`. */
void switch_context(Context& from, Context& to);
/** Makes `context` start `entry` on a stack that ends at `top`. `entry` never returns. */
void start_context(Context& context, std::byte* bottom, std::byte* top, void (*entry)());

/** Stacks as module.h lays them out, each with an unmapped page below it. */
class Stacks {
 public:
  Stacks() = default;
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  ~Stacks();
  /** At least `count` stacks, from an earlier use if there is one. Null when memory is short. */
  static std::unique_ptr<Stacks> take(uint32_t count);
  static void give_back(std::unique_ptr<Stacks> stacks);
  /** What kernels on stack `i` find as their thread. */
  void set_thread(uint32_t i, Thread* thread) { reinterpret_cast<Thread**>(base_)[i + kFirstStack] = thread; }
  /** Memory of the block that its user has for itself. */
  std::byte* shared() const { return base_ + kTable; }
  std::byte* bottom(uint32_t i) const { return base_ + (i + kFirstStack) * kStackBytes + kGuard; }
  /** Staggered, so that the hot ends of many stacks do not share a cache set. */
  std::byte* top(uint32_t i) const { return bottom(i) - kGuard + kStackBytes - 64 - (i * 7 % 61) * 320 / 64 * 64; }
  /** Which stack's guard page holds this address; -1 if none. */
  int64_t guard_of(uintptr_t address) const;

  static constexpr size_t kSharedBytes = kFirstStack * kStackBytes - 16 * 1024;

 private:
  bool reserve(uint32_t count);

  static constexpr size_t kGuard = 16 * 1024, kTable = 16 * 1024;
  static_assert((kMaxThreads + kFirstStack) * kStackBytes <= kStacksBytes);
  static_assert((kMaxThreads + kFirstStack) * sizeof(Thread*) <= kTable);
  std::byte* base_ = nullptr;
  uint32_t count_ = 0;
};

}  // namespace metal_sim
