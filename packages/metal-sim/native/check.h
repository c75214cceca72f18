// Check mode: what each byte's last accesses were, and whether barriers stand between them and the next.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "module.h"

namespace metal_sim {

/** Which memory a barrier's flags order. */
enum class Memory : uint8_t { kDevice, kThreadgroup };

/** One access, as far as the order between accesses depends on it. */
struct Access {
  /** When the last barrier that orders this memory was, by a clock that starts at 1; 0 is no access. */
  uint32_t epoch = 0;
  /** Barriers of the simdgroup so far that order this memory. */
  uint32_t simdgroup_epoch = 0;
  /** Where the call that reports it returns to, relative to the module; 0 if that is not known. */
  uint32_t pc = 0;
  uint16_t thread = 0;
  uint16_t flags = 0;  // AccessFlags
  bool writes() const { return flags & kWrite; }
  bool atomic() const { return flags & kAtomic; }
  bool reads() const { return !(flags & kWrite) || (flags & kModify); }
  uint32_t simdgroup() const { return thread / kSimdgroupSize; }
};

/** What is remembered of one granule. */
struct alignas(64) Cell {
  Access writer;
  /** Readers since the last write: distinct threads of the newest threadgroup, of distinct simdgroups if possible. */
  Access reader[2];
  /** A reader of an earlier threadgroup of the dispatch, or an atomic writer before an atomic writer. */
  Access stranger;
};

/** A stretch of memory that a kernel may access. */
struct Region {
  uintptr_t begin;
  uintptr_t end;
  std::string name;
  AddressSpace space;
  bool read_only;
  Memory memory() const { return space == AddressSpace::kThreadgroup ? Memory::kThreadgroup : Memory::kDevice; }
  /** One cell stands for 2 to the power of this many bytes: the smallest access so far. */
  uint32_t granule_bits = 2;
  Cell* cells = nullptr;
  /** Whether one of so many cells has been touched: the others are zeros, and are not even read. */
  std::vector<bool> touched;
  static constexpr size_t kTouchedTogether = 64;
  /** Where the cells are, with room to align them. Zeros as the system gives them: most are never touched. */
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_of_cells;
  bool allocate(uint32_t of_bits);
  Cell& touch(size_t cell) {
    touched[cell / kTouchedTogether] = true;
    return cells[cell];
  }
};

/** Where a module lies: its own constants are no kernel's memory. */
struct Image {
  uintptr_t begin, end;
};

enum class Finding : uint8_t { kRace, kOutOfBounds, kUninitialized, kReadOnly };

/** Receives findings while the accessing thread stands still. */
class CheckSink {
 public:
  virtual ~CheckSink() = default;
  /** `other` is the earlier access of a race. */
  virtual void found(Finding kind, const Region& region, int64_t offset, uint32_t bytes, const Access& now,
                     const Access* other) = 0;
};

/** Shadow state of one dispatch, which runs its threadgroups one after another. */
class Checker {
 public:
  Checker(CheckSink& sink, const Image& image) : sink_(sink), image_(image) {}
  /** False when memory is short. */
  bool add(uintptr_t begin, uintptr_t end, std::string name, AddressSpace space, bool read_only);
  /** Forgets the threadgroup's memory: it starts unwritten. */
  void begin_threadgroup(uint32_t simdgroups);
  void threadgroup_barrier(uint32_t flags);
  void simdgroup_barrier(uint32_t simdgroup, uint32_t flags);
  /** `thread` accesses memory. Addresses far from any region are the thread's own. */
  void access(const Thread& thread, uintptr_t address, uint32_t bytes, uint32_t flags, uintptr_t pc);
  /** Which threadgroup made an access, in the order in which they ran, from 0. */
  uint32_t threadgroup_of(const Access& access) const;

 private:
  Region* region_of(uintptr_t address, bool* inside);
  bool ordered(const Access& before, const Access& now) const;
  void check_cell(Region& region, Cell& cell, int64_t offset, uint32_t bytes, const Access& now);
  void remember_reader(Cell& cell, const Access& now) const;

  CheckSink& sink_;
  const Image image_;
  std::vector<std::unique_ptr<Region>> regions_;
  /** The region last found at addresses of that hash. */
  Region* hints_[64] = {};
  uintptr_t lowest_ = UINTPTR_MAX, highest_ = 0;
  /** Ticks at each threadgroup's begin and at each barrier. */
  uint32_t clock_ = 0;
  /** When this threadgroup began, and each so far. */
  uint32_t begin_ = 0;
  std::vector<uint32_t> begins_;
  uint32_t epoch_[2] = {};
  uint32_t simdgroup_epoch_[2][kMaxThreads / kSimdgroupSize] = {};
};

}  // namespace metal_sim
