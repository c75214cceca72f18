// Copies of buffers between zones that fault or are watched.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace metal_sim {

/** Unmapped address space on either side of a guarded block: a wrong index lands in it, not in another block. */
constexpr size_t kGuardReach = size_t(32) << 20;

/** Memory whose last byte is followed, up to alignment, by an unmapped zone; the first is preceded by one. */
class GuardedBlock {
 public:
  /** `margin` bytes on either side stay mapped, for a checker that sees every access before it happens. */
  GuardedBlock(size_t bytes, size_t margin);
  GuardedBlock(GuardedBlock&&) noexcept;
  GuardedBlock& operator=(GuardedBlock&&) = delete;
  ~GuardedBlock();
  explicit operator bool() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /** Fills with 0xff: NaN in every float type, a huge index in every integer type. */
  void poison();
  /** True if a byte around the block was changed; `*offset` is its place relative to the block. */
  bool trampled(int64_t* offset) const;
  /** True if the address is in the block or within reach of it. */
  bool near(uintptr_t address) const;

 private:
  std::byte* reserved_ = nullptr;
  std::byte* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace metal_sim
