// Contract between a compiled kernel module and the engine. Freestanding C++14: kernels include it too.
#pragma once
// Kernels see the shim's types and none of the system's headers.
#ifndef METAL_SIM_TYPES
#include <stddef.h>
#include <stdint.h>
#endif

namespace metal_sim {

constexpr uint32_t kModuleVersion = 6;
constexpr uint32_t kSimdgroupSize = 32;
constexpr uint32_t kMaxBuffers = 31;
constexpr uint32_t kMaxThreadgroupArguments = 31;
constexpr uint32_t kMaxThreads = 1024;
constexpr uint32_t kSlotBytes = 64;
constexpr uint32_t kMaxCopies = 32;
constexpr uint32_t kMaxProducts = 16;
/**
 * The stacks of a threadgroup lie side by side in a block that is aligned to its size. In front of them is a table with
 * the `Thread*` of each, counted in stacks from the block's begin, and what else the engine keeps for the threadgroup:
 * an access to the block is no access to the kernel's memory.
 */
constexpr uintptr_t kStackBytes = 256 * 1024;
constexpr uintptr_t kStacksBytes = kStackBytes * 2048;
constexpr uintptr_t kFirstStack = 8;

/** What the lanes of one simdgroup exchange. Two phases: a lane is at most one operation ahead of another. */
struct Exchange {
  alignas(64) float a[2][64];
  alignas(64) float b[2][64];
  alignas(64) float c[2][64];
  alignas(64) float d[2][64];
  alignas(64) unsigned char slot[2][kSimdgroupSize][kSlotBytes];
  unsigned char result[2][kSlotBytes];
  /** Lanes that took part in the operation of each phase. */
  uint32_t active[2];
  /** Of the first simdgroup: a thread has passed a barrier with copies that no product of a warpgroup may see. */
  uint32_t unfenced;
  /** What this simdgroup has executed of its warpgroup's instructions: now, and when all threads met, in turn. */
  uint32_t warpgroup_steps;
  uint32_t warpgroup_steps_met[2];
};

/** Where an operation stands in the source. */
struct Site {
  const char* file;
  uint32_t line;
  const char* operation;
};

/** `kModify` stands beside `kWrite`: what was there matters. */
enum AccessFlags : uint32_t { kRead = 0, kWrite = 1, kAtomic = 2, kModify = 4 };

/** What the undefined-behavior checks report. */
enum class Undefined : uint32_t { kIndex, kAlignment, kDivision, kShift, kLane, kWarpgroup };

struct Host;
struct Arguments;

/** A copy to threadgroup memory that has started, after so many groups of copies. */
struct PendingCopy {
  void* to;
  const void* from;
  uint32_t bytes;
  uint32_t count;
  uint32_t group;
};

/** A product of a warpgroup that has begun, after so many groups of products, with `blocks` of eight columns. */
struct PendingProduct {
  float* d;
  /** The address of registers, or an operand in threadgroup memory. */
  uint64_t a;
  uint64_t b;
  uint32_t group;
  uint8_t blocks;
  bool add;
  bool registers;
  /** The right operand lies as it is, not transposed. */
  bool rows;
};

/** One simulated thread, as the kernel sees itself. */
struct Thread {
  uint32_t thread_position_in_threadgroup[3];
  uint32_t threadgroup_position_in_grid[3];
  uint32_t threads_per_threadgroup[3];
  uint32_t dispatch_threads_per_threadgroup[3];
  uint32_t threadgroups_per_grid[3];
  uint32_t threads_per_grid[3];
  uint32_t thread_position_in_grid[3];
  uint32_t thread_index_in_threadgroup;
  uint32_t thread_index_in_simdgroup;
  uint32_t simdgroup_index_in_threadgroup;
  uint32_t simdgroups_per_threadgroup;
  uint32_t phase;
  Exchange* exchange;
  /** Of check mode. */
  void* checker;
  const Host* host;
  const Arguments* arguments;
  /** Of CUDA translations. */
  uint32_t copy_groups;
  uint32_t copy_count;
  PendingCopy copies[kMaxCopies];
  uint32_t product_groups;
  uint32_t product_count;
  PendingProduct products[kMaxProducts];
  /** Copies have arrived since it last made them visible to products of warpgroups. */
  uint32_t unfenced;
  uint32_t meetings;
};

/** The engine's side of a running kernel. */
struct Host {
  void (*threadgroup_barrier)(uint32_t flags, const Site& site);
  /** Waits for the simdgroup's live lanes; the last to arrive runs `last` before any goes on. */
  void (*simdgroup_rendezvous)(uint32_t flags, const Site& site, void (*last)(Exchange&, uint32_t phase),
                               uint32_t phase);
  void* (*threadgroup_variable)(const void* key, uint32_t bytes, uint32_t align, const Site& site);
  void (*access)(const Thread& thread, const volatile void* address, uint32_t bytes, uint32_t flags, const void* pc);
  void (*undefined)(Undefined kind, const Site& site, uint64_t value);
  /** Lets another thread go first under a random schedule, and notices a time limit. */
  void (*breathe)();
};

struct Arguments {
  void* buffer[kMaxBuffers];
  void* threadgroup[kMaxThreadgroupArguments];
};

enum class ArgumentKind : uint32_t { kBuffer, kThreadgroup, kBuiltin };
enum class AddressSpace : uint32_t { kDevice, kConstant, kThreadgroup, kThread };

struct Argument {
  const char* name;
  ArgumentKind kind;
  uint32_t index;
  AddressSpace space;
  bool read_only;
  /** Of what the pointer or reference names, or of the builtin. */
  const char* type;
  uint32_t type_bytes;
  uint32_t type_align;
  /** The attribute, as written. */
  const char* attribute;
  const char* file;
  uint32_t line;
};

struct Kernel {
  const char* name;
  void (*entry)(const Arguments&, const Thread&);
  const Argument* arguments;
  uint32_t argument_count;
  /** [[max_total_threads_per_threadgroup(n)]], or 0. */
  uint32_t max_threads;
  const char* file;
  uint32_t line;
};

/** A basic block that the coverage build watches. */
struct CoverageBlock {
  uintptr_t pc;
  uintptr_t flags;
};

struct Module {
  uint32_t version;
  /** Instrumented for check mode. */
  uint32_t checked;
  const Kernel* kernels;
  uint32_t kernel_count;
  const CoverageBlock* (*blocks)(uint32_t* count, const unsigned char** hits);
};

}  // namespace metal_sim
