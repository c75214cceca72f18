#include "guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace metal_sim {

namespace {
/** The strictest alignment of an MSL type that lies in a buffer. */
constexpr size_t kAlign = 16;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

size_t reserved_bytes(size_t mapped_bytes) { return mapped_bytes + 2 * kGuardReach; }

/** Address space of blocks that are gone, by mapped bytes: to map it takes longer than a small kernel runs. */
class FreeBlocks {
 public:
  /** The begin of a reservation that has so many bytes mapped; null: there is none. */
  std::byte* take(size_t mapped_bytes) {
    std::lock_guard lock(mutex_);
    const auto found = blocks_.find(mapped_bytes);
    if (found == blocks_.end()) return nullptr;
    std::byte* const reserved = found->second;
    blocks_.erase(found);
    bytes_ -= mapped_bytes;
    return reserved;
  }

  void give_back(std::byte* reserved, size_t mapped_bytes) {
    {
      std::lock_guard lock(mutex_);
      if (blocks_.size() < kMost && bytes_ + mapped_bytes <= kMostBytes) {
        blocks_.emplace(mapped_bytes, reserved);
        bytes_ += mapped_bytes;
        return;
      }
    }
    munmap(reserved, reserved_bytes(mapped_bytes));
  }

 private:
  static constexpr size_t kMost = 256, kMostBytes = size_t(64) << 20;
  std::mutex mutex_;
  std::multimap<size_t, std::byte*> blocks_;
  size_t bytes_ = 0;  // mapped
};

// Never destroyed: a process may end while kernels still run.
FreeBlocks& free_blocks = *new FreeBlocks;
}  // namespace

GuardedBlock::GuardedBlock(size_t bytes, size_t margin) {
  const size_t page = size_t(sysconf(_SC_PAGESIZE));
  mapped_bytes_ = round_up(round_up(bytes, kAlign) + 2 * round_up(margin, page), page);
  reserved_ = free_blocks.take(mapped_bytes_);
  if (!reserved_) {
    const size_t reserved = reserved_bytes(mapped_bytes_);
    void* memory = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return;
    if (mprotect(static_cast<std::byte*>(memory) + kGuardReach, mapped_bytes_, PROT_READ | PROT_WRITE) != 0) {
      munmap(memory, reserved);
      return;
    }
    reserved_ = static_cast<std::byte*>(memory);
  }
  mapped_ = reserved_ + kGuardReach;
  bytes_ = bytes;
  data_ = mapped_ + mapped_bytes_ - round_up(margin, page) - round_up(bytes, kAlign);
  poison();
}

GuardedBlock::GuardedBlock(GuardedBlock&& other) noexcept
    : reserved_(std::exchange(other.reserved_, nullptr)),
      mapped_(other.mapped_),
      mapped_bytes_(other.mapped_bytes_),
      data_(other.data_),
      bytes_(other.bytes_) {}

GuardedBlock::~GuardedBlock() {
  if (reserved_) free_blocks.give_back(reserved_, mapped_bytes_);
}

void GuardedBlock::poison() { std::memset(mapped_, 0xff, mapped_bytes_); }

bool GuardedBlock::trampled(int64_t* offset) const {
  const auto changed = [&](const std::byte* from, const std::byte* to) {
    for (const std::byte* at = from; at < to; ++at)
      if (*at != std::byte(0xff)) {
        *offset = at - data_;
        return true;
      }
    return false;
  };
  return changed(data_ + bytes_, mapped_ + mapped_bytes_) || changed(mapped_, data_);
}

bool GuardedBlock::near(uintptr_t address) const {
  const uintptr_t base = reinterpret_cast<uintptr_t>(reserved_);
  return address >= base && address < base + reserved_bytes(mapped_bytes_);
}

}  // namespace metal_sim
