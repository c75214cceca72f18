#include "check.h"

#include <algorithm>

#include "guarded_memory.h"

namespace metal_sim {

bool Checker::add(uintptr_t begin, uintptr_t end, std::string name, AddressSpace space, bool read_only) {
  auto region = std::make_unique<Region>();
  region->begin = begin, region->end = end, region->name = std::move(name);
  region->space = space, region->read_only = read_only;
  if (!region->allocate(region->granule_bits)) return false;
  lowest_ = std::min(lowest_, begin - kGuardReach);
  highest_ = std::max(highest_, end + kGuardReach);
  regions_.push_back(std::move(region));
  return true;
}

void Checker::begin_threadgroup(uint32_t simdgroups) {
  begin_ = epoch_[0] = epoch_[1] = ++clock_;
  begins_.push_back(begin_);
  for (auto& epochs : simdgroup_epoch_) std::fill_n(epochs, simdgroups, 1u);
}

void Checker::threadgroup_barrier(uint32_t flags) {
  ++clock_;
  for (int memory = 0; memory < 2; ++memory)
    if ((flags >> memory) & 1) epoch_[memory] = clock_;
}

void Checker::simdgroup_barrier(uint32_t simdgroup, uint32_t flags) {
  for (int memory = 0; memory < 2; ++memory) simdgroup_epoch_[memory][simdgroup] += (flags >> memory) & 1;
}

uint32_t Checker::threadgroup_of(const Access& access) const {
  return uint32_t(std::upper_bound(begins_.begin(), begins_.end(), access.epoch) - begins_.begin()) - 1;
}

Region* Checker::region_of(uintptr_t address, bool* inside) {
  Region*& hint = hints_[(address >> 12 ^ address >> 22) % std::size(hints_)];
  *inside = true;
  if (hint && address - hint->begin < hint->end - hint->begin) return hint;
  if (address < lowest_ || address >= highest_ || (address >= image_.begin && address < image_.end)) return nullptr;
  Region* nearest = nullptr;
  uintptr_t distance = kGuardReach;
  for (auto& region : regions_) {
    if (address >= region->begin && address < region->end) return hint = region.get();
    const uintptr_t gap = address < region->begin ? region->begin - address : address - region->end;
    if (gap < distance) nearest = region.get(), distance = gap;
  }
  *inside = false;
  return nearest;
}

bool Region::allocate(uint32_t of_bits) {
  const size_t count = ((end - begin) >> of_bits) + 1;
  void* fresh_memory = std::calloc(count + 1, sizeof(Cell));
  if (!fresh_memory) return false;
  Cell* fresh = reinterpret_cast<Cell*>((uintptr_t(fresh_memory) + alignof(Cell) - 1) & ~(alignof(Cell) - 1));
  std::vector<bool> fresh_touched(count / kTouchedTogether + 1);
  const size_t parts = size_t(1) << (granule_bits - of_bits);
  for (size_t together = 0; together < touched.size(); ++together) {
    if (!touched[together]) continue;
    const size_t first = together * kTouchedTogether * parts;
    for (size_t i = first; i < std::min(first + kTouchedTogether * parts, count); ++i) {
      fresh[i] = cells[i / parts];
      fresh_touched[i / kTouchedTogether] = true;
    }
  }
  touched = std::move(fresh_touched);
  memory_of_cells.reset(fresh_memory);
  cells = fresh, granule_bits = of_bits;
  return true;
}

/** True if the later access may rely on what the earlier one did. */
inline bool Checker::ordered(const Access& before, const Access& now) const {
  if (before.epoch < begin_) return false;
  if (before.thread == now.thread || before.epoch != now.epoch) return true;
  return before.simdgroup() == now.simdgroup() && before.simdgroup_epoch != now.simdgroup_epoch;
}

inline void Checker::remember_reader(Cell& cell, const Access& now) const {
  Access &a = cell.reader[0], &b = cell.reader[1];
  if (a.epoch && a.epoch < begin_) {
    cell.stranger = a;
    a = b = {};
  }
  const auto stale = [&](const Access& r) { return r.epoch != now.epoch || r.thread == now.thread; };
  if (stale(a)) {
    a = now;
    if (b.epoch != now.epoch) b = {};
    return;
  }
  if (stale(b)) {
    b = now;
    return;
  }
  if (a.simdgroup() == b.simdgroup() && now.simdgroup() != a.simdgroup())
    b = now;
  else if (now.simdgroup() == a.simdgroup() && now.simdgroup_epoch > a.simdgroup_epoch)
    a = now;
  else if (now.simdgroup() == b.simdgroup() && now.simdgroup_epoch > b.simdgroup_epoch)
    b = now;
}

inline void Checker::check_cell(Region& region, Cell& cell, int64_t offset, uint32_t bytes, const Access& now) {
  const auto conflict = [&](const Access& before) {
    if (before.epoch == 0 || (before.atomic() && now.atomic()) || ordered(before, now)) return false;
    // Threadgroup memory of another threadgroup is other memory.
    if (before.epoch < begin_ && region.memory() == Memory::kThreadgroup) return false;
    sink_.found(Finding::kRace, region, offset, bytes, now, &before);
    return true;
  };
  if (now.reads() && region.memory() == Memory::kThreadgroup && cell.writer.epoch < begin_)
    sink_.found(Finding::kUninitialized, region, offset, bytes, now, nullptr);
  const bool raced = conflict(cell.writer) || (cell.stranger.writes() && conflict(cell.stranger));
  if (now.writes()) {
    if (!raced && !conflict(cell.reader[0]) && !conflict(cell.reader[1])) conflict(cell.stranger);
    // An atomic does not hide the atomic of another thread from a plain access of its own.
    Access hidden;
    if (now.atomic() && cell.writer.atomic()) hidden = cell.writer.thread != now.thread ? cell.writer : cell.stranger;
    cell = {.writer = now, .reader = {}, .stranger = hidden.writes() ? hidden : Access{}};
    return;
  }
  remember_reader(cell, now);
}

void Checker::access(const Thread& thread, uintptr_t address, uint32_t bytes, uint32_t flags, uintptr_t pc) {
  bool inside;
  Region* region = region_of(address, &inside);
  if (!region || bytes == 0) return;
  const uintptr_t room = region->end - address;
  // What nobody may write has no races.
  if (inside && region->read_only && !(flags & kWrite) && bytes <= room) return;
  const size_t memory = size_t(region->memory());
  const Access now{epoch_[memory], simdgroup_epoch_[memory][thread.simdgroup_index_in_threadgroup],
                   uint32_t(pc > image_.begin && pc < image_.end ? pc - image_.begin : 0),
                   uint16_t(thread.thread_index_in_threadgroup), uint16_t(flags)};
  const int64_t offset = int64_t(address) - int64_t(region->begin);
  if (!inside || bytes > room) sink_.found(Finding::kOutOfBounds, *region, offset, bytes, now, nullptr);
  if (!inside) return;
  if (now.writes() && region->read_only) sink_.found(Finding::kReadOnly, *region, offset, bytes, now, nullptr);
  const uintptr_t end = std::min(address + bytes, region->end);
  const uintptr_t first = address - region->begin, behind = end - region->begin;
  const auto whole = [&](uintptr_t at) { return (at & ((uintptr_t(1) << region->granule_bits) - 1)) == 0; };
  while (region->granule_bits > 0 && !(whole(first) && (whole(behind) || end == region->end)))
    if (!region->allocate(region->granule_bits - 1)) return;
  const uint32_t bits = region->granule_bits;
  for (uintptr_t cell = first >> bits; cell <= (behind - 1) >> bits; ++cell)
    check_cell(*region, region->touch(cell), offset, bytes, now);
}

}  // namespace metal_sim
