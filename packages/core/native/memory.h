// Bytes that a device can reach. They are counted, and freed when the last user is gone: a handle, or work in flight.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace mlxts {

struct MemoryCounters {
  std::atomic<uint64_t> liveBuffers{0}, liveBytes{0}, peakBytes{0};
};

// An open file, closed by the destructor.
struct File {
  int descriptor = -1;
  File() = default;
  explicit File(int descriptor) : descriptor(descriptor) {}
  ~File();
  File(File&& other) noexcept : descriptor(std::exchange(other.descriptor, -1)) {}
  File(const File&) = delete;
  explicit operator bool() const { return descriptor >= 0; }
};
// A plain file of at least `bytes` bytes, for reading; closed and an errno otherwise.
File openPlainFile(const std::string& path, uint64_t bytes, int& error);

// How the host reads and writes bytes that only a device reaches; `address` is the device's.
struct HostAccess {
  virtual ~HostAccess() = default;
  virtual void read(uint64_t address, void* to, uint64_t bytes) = 0;
  virtual void write(uint64_t address, const void* from, uint64_t bytes) = 0;
};

class Memory {
 public:
  // Zero-filled, 64-byte aligned. Null when the system refuses.
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

  // Where the bytes lie: an address of the device where `access` is set, which the host must not use then.
  uint8_t* data() const { return data_; }
  void read(uint64_t offset, void* to, uint64_t bytes) const;
  void write(uint64_t offset, const void* from, uint64_t bytes) const;
  uint64_t bytes() const { return bytes_; }
  // How many bytes may be accessed, at least bytes(): what is mapped extends to the end of its last page.
  uint64_t span() const { return span_; }
  bool readOnly() const { return readOnly_; }
  // Nothing writes it from now on.
  void freeze() { readOnly_ = true; }

  // The device's own object for these bytes; it is destroyed before they are freed.
  std::shared_ptr<void> attachment;
  // Set for memory that the host does not share with the device.
  std::shared_ptr<HostAccess> access;

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
