// Bytes that a device can reach. They are counted, and freed when the last user is gone: a handle, or work in flight.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace mlxts {

struct MemoryCounters {
  std::atomic<uint64_t> liveBuffers{0}, liveBytes{0}, peakBytes{0};
};

class Memory {
 public:
  // Zero-filled, 64-byte aligned; zeros fill the last page. Null when the system refuses.
  static std::shared_ptr<Memory> allocate(uint64_t bytes, std::shared_ptr<MemoryCounters> counters);
  // A file, read-only, at a multiple of `alignment` (a power of two); the rest of its last page reads 0. Null and an
  // errno when the system refuses.
  static std::shared_ptr<Memory> map(const std::string& path, uint64_t bytes, uint64_t alignment,
                                     std::shared_ptr<MemoryCounters> counters, int& error);
  // Bytes that others own; `release` is called when the last user is gone.
  static std::shared_ptr<Memory> wrap(void* data, uint64_t bytes, bool readOnly,
                                      std::shared_ptr<MemoryCounters> counters, std::function<void()> release);
  ~Memory();
  Memory(const Memory&) = delete;

  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  // How many bytes may be accessed, at least bytes(): a mapping extends to the end of its last page.
  uint64_t span() const { return span_; }
  bool readOnly() const { return readOnly_; }

  // The device's own object for these bytes; it is destroyed before they are freed.
  std::shared_ptr<void> attachment;

 private:
  Memory(void* data, uint64_t bytes, uint64_t span, bool readOnly, std::shared_ptr<MemoryCounters> counters,
         std::function<void()> release);
  uint8_t* data_;
  uint64_t bytes_, span_;
  bool readOnly_;
  std::shared_ptr<MemoryCounters> counters_;
  std::function<void()> release_;
};

}  // namespace mlxts
