// Memory of a GPU, which the host reads and writes through pinned memory.
#pragma once
#include <memory>
#include <mutex>

#include "cuda_context.h"
#include "cuda_staging.h"
#include "memory.h"

namespace mlxts::cuda {

class Heap : public HostAccess, public std::enable_shared_from_this<Heap> {
 public:
  explicit Heap(std::shared_ptr<Gpu> gpu);
  ~Heap() override;

  // Zero-filled memory; null when the GPU has not so much left.
  std::shared_ptr<Memory> allocate(uint64_t bytes, std::shared_ptr<MemoryCounters> counters);
  // Read-only memory for what `stream` is about to copy there; to be freed when that has been done.
  std::shared_ptr<Memory> reserve(uint64_t bytes, Stream stream, std::shared_ptr<MemoryCounters> counters);
  // Failure code CommandBuffer when the device is lost.
  void read(uint64_t address, void* to, uint64_t bytes) override;
  void write(uint64_t address, const void* from, uint64_t bytes) override;

  // What is submitted from now on starts after everything that has been allocated and written.
  void orderBefore(Stream stream);

 private:
  Address take(uint64_t bytes, Stream stream);
  void give(Address address);
  std::shared_ptr<Memory> own(Address address, uint64_t bytes, bool readOnly, std::shared_ptr<MemoryCounters> counters);
  Staging& staging();
  void writeSoon(uint64_t address, const void* from, uint64_t bytes);

  const std::shared_ptr<Gpu> gpu_;
  std::mutex mutex_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<SmallStaging> small_;
  int nextSmall_ = 0;
  Event ready_ = nullptr;
  bool pending_ = false;  // something was allocated or written since the last orderBefore
};

}  // namespace mlxts::cuda
