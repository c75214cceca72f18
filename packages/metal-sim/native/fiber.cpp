#include "fiber.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace metal_sim {

#ifdef METAL_SIM_UCONTEXT

void switch_context(Context& from, Context& to) { swapcontext(&from.saved, &to.saved); }

void start_context(Context& context, std::byte* bottom, std::byte* top, void (*entry)()) {
  getcontext(&context.saved);
  context.saved.uc_stack.ss_sp = bottom;
  context.saved.uc_stack.ss_size = size_t(top - bottom);
  context.saved.uc_link = nullptr;
  makecontext(&context.saved, entry, 0);
}

#else

#ifdef __APPLE__
#define SYMBOL "_metal_sim_switch"
#else
#define SYMBOL "metal_sim_switch"
#endif

extern "C" void metal_sim_switch(void** save, void* to);

// The callee-saved registers of the calling convention go onto the stack that is left.
#if defined(__x86_64__)
asm(R"(
.text
.globl )" SYMBOL R"(
)" SYMBOL R"(:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
constexpr int kSavedWords = 6;
#else
asm(R"(
.text
.globl )" SYMBOL R"(
.p2align 2
)" SYMBOL R"(:
  stp x29, x30, [sp, #-160]!
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  stp x23, x24, [sp, #48]
  stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #16]
  ldp x21, x22, [sp, #32]
  ldp x23, x24, [sp, #48]
  ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x29, x30, [sp], #160
  ret
)");
constexpr int kSavedWords = 20;
#endif

void switch_context(Context& from, Context& to) { metal_sim_switch(&from.stack_pointer, to.stack_pointer); }

void start_context(Context& context, std::byte*, std::byte* top, void (*entry)()) {
  void** at = reinterpret_cast<void**>(top);
#if defined(__x86_64__)
  // As after a call: a return address, which is never used, below an aligned stack.
  *--at = nullptr;
  *--at = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kSavedWords; ++i) *--at = nullptr;
#else
  at -= kSavedWords;
  for (int i = 0; i < kSavedWords; ++i) at[i] = nullptr;
  at[1] = reinterpret_cast<void*>(entry);
#endif
  context.stack_pointer = at;
}

#endif

bool Stacks::reserve(uint32_t count) {
  void* memory = mmap(nullptr, 2 * kStacksBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  std::byte* const begin = static_cast<std::byte*>(memory);
  base_ = begin + (kStacksBytes - 1 - (uintptr_t(begin) - 1) % kStacksBytes), count_ = count;
  // The rest of the block stays reserved: nothing else may lie in it.
  if (base_ > begin) munmap(begin, size_t(base_ - begin));
  munmap(base_ + kStacksBytes, size_t(begin + kStacksBytes - base_));
  const auto use = [](std::byte* from, size_t bytes) { return mprotect(from, bytes, PROT_READ | PROT_WRITE) == 0; };
  if (!use(base_, kFirstStack * kStackBytes)) return false;
  for (uint32_t i = 0; i < count; ++i)
    if (!use(bottom(i), kStackBytes - kGuard)) return false;
  return true;
}

namespace {
std::mutex pool_mutex;
// Never destroyed: a process may end while kernels still run.
auto& pool = *new std::vector<std::unique_ptr<Stacks>>;
}  // namespace

std::unique_ptr<Stacks> Stacks::take(uint32_t count) {
  {
    std::lock_guard lock(pool_mutex);
    for (auto& stacks : pool)
      if (stacks->count_ >= count) {
        std::swap(stacks, pool.back());
        auto found = std::move(pool.back());
        pool.pop_back();
        return found;
      }
  }
  auto fresh = std::make_unique<Stacks>();
  if (!fresh->reserve(count)) return nullptr;
  return fresh;
}

void Stacks::give_back(std::unique_ptr<Stacks> stacks) {
  constexpr size_t kKept = 4;
  std::lock_guard lock(pool_mutex);
  if (!stacks) return;
  // Few are kept, and the largest of them.
  pool.push_back(std::move(stacks));
  std::sort(pool.begin(), pool.end(), [](const auto& a, const auto& b) { return a->count_ < b->count_; });
  if (pool.size() > kKept) pool.erase(pool.begin());
}

Stacks::~Stacks() {
  if (base_) munmap(base_, kStacksBytes);
}

int64_t Stacks::guard_of(uintptr_t address) const {
  const uintptr_t base = reinterpret_cast<uintptr_t>(base_);
  if (!base_ || address < base + kFirstStack * kStackBytes || address >= base + (count_ + kFirstStack) * kStackBytes)
    return -1;
  return (address - base) % kStackBytes < kGuard ? int64_t((address - base) / kStackBytes - kFirstStack) : -1;
}

}  // namespace metal_sim
