#include "guarded_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>

namespace metal_sim {

namespace {
/** The strictest alignment of an MSL type that lies in a buffer. */
constexpr size_t kAlign = 16;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }
}  // namespace

GuardedBlock::GuardedBlock(size_t bytes, size_t margin) {
  const size_t page = size_t(sysconf(_SC_PAGESIZE));
  mapped_bytes_ = round_up(round_up(bytes, kAlign) + 2 * round_up(margin, page), page);
  reserved_bytes_ = mapped_bytes_ + 2 * kGuardReach;
  void* memory = mmap(nullptr, reserved_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  reserved_ = static_cast<std::byte*>(memory);
  mapped_ = reserved_ + kGuardReach;
  if (mprotect(mapped_, mapped_bytes_, PROT_READ | PROT_WRITE) != 0) return;
  bytes_ = bytes;
  data_ = mapped_ + mapped_bytes_ - round_up(margin, page) - round_up(bytes, kAlign);
  poison();
}

GuardedBlock::GuardedBlock(GuardedBlock&& other) noexcept
    : reserved_(std::exchange(other.reserved_, nullptr)),
      reserved_bytes_(other.reserved_bytes_),
      mapped_(other.mapped_),
      mapped_bytes_(other.mapped_bytes_),
      data_(other.data_),
      bytes_(other.bytes_) {}

GuardedBlock::~GuardedBlock() {
  if (reserved_) munmap(reserved_, reserved_bytes_);
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
  return address >= base && address < base + reserved_bytes_;
}

}  // namespace metal_sim
