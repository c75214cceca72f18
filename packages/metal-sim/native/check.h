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
  /** Counts threadgroups over all dispatches, from 1; 0 is no access. */
  uint32_t threadgroup = 0;
  /** Barriers of the threadgroup so far that order this memory, and of the simdgroup. */
  uint32_t epoch = 0;
  uint32_t simdgroup_epoch = 0;
  uint16_t thread = 0;
  bool write = false;
  bool atomic = false;
  bool reads = true;
  /** Relative to the module; 0 for an access whose place is not known. */
  uint64_t pc = 0;
};

/** What is remembered of one granule. */
struct Cell {
  Access writer;
  /** Readers since the last write: distinct threads of the newest threadgroup, of distinct simdgroups if possible. */
  Access reader[2];
  /** A reader of an earlier threadgroup of the dispatch, or an atomic writer before an atomic writer. */
  Access stranger;
  /** The threadgroup that has written the granule; matters for threadgroup memory only. */
  uint32_t written = 0;
};

/** A stretch of memory that a kernel may access. */
struct Region {
  uintptr_t begin;
  uintptr_t end;
  std::string name;
  AddressSpace space;
  bool read_only;
  Memory memory() const { return space == AddressSpace::kThreadgroup ? Memory::kThreadgroup : Memory::kDevice; }
  /** Bytes that one cell stands for: the smallest access so far. */
  uint32_t granule = 4;
  /** Zeros as the system gives them: most of a large buffer's are never touched. */
  struct Free {
    void operator()(Cell* cells) const { std::free(cells); }
  };
  std::unique_ptr<Cell[], Free> cells;
  bool allocate(uint32_t of_granule);
};

enum class Finding : uint8_t { kRace, kOutOfBounds, kUninitialised, kReadOnly };

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
  explicit Checker(CheckSink& sink) : sink_(sink) {}
  /** False when memory is short. */
  bool add(uintptr_t begin, uintptr_t end, std::string name, AddressSpace space, bool read_only);
  /** Forgets the threadgroup's memory: it starts unwritten. */
  void begin_threadgroup(uint32_t simdgroups);
  void threadgroup_barrier(uint32_t flags);
  void simdgroup_barrier(uint32_t simdgroup, uint32_t flags);
  /** `thread` accesses memory. Addresses that belong to no region and no guard zone are the thread's own. */
  void access(const Thread& thread, uintptr_t address, uint32_t bytes, uint32_t flags, uint64_t pc);

 private:
  Region* region_of(uintptr_t address, bool* inside);
  bool ordered(const Access& before, const Access& now) const;
  void check_cell(Region& region, Cell& cell, int64_t offset, uint32_t bytes, const Access& now);
  static void remember_reader(Cell& cell, const Access& now);

  CheckSink& sink_;
  std::vector<std::unique_ptr<Region>> regions_;
  Region* last_ = nullptr;
  uintptr_t lowest_ = UINTPTR_MAX, highest_ = 0;
  uint32_t threadgroup_ = 0;
  uint32_t epoch_[2] = {1, 1};
  uint32_t simdgroup_epoch_[2][kMaxThreads / kSimdgroupSize] = {};
};

}  // namespace metal_sim
