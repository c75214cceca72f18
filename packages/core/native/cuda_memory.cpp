#include "cuda_memory.h"

#include <algorithm>
#include <cstring>

namespace mlxts::cuda {

namespace {

constexpr uint64_t kPiece = 8u << 20;
constexpr int kPieces = Staging::kPieces;
constexpr uint64_t kSmall = 16u << 10;  // what the host writes without waiting for the copy

// What is taken for so many bytes; 0 when that is no number.
uint64_t spanOf(uint64_t bytes) {
  const uint64_t span = (std::max<uint64_t>(bytes, 1) + 15) / 16 * 16;
  return span < bytes ? 0 : span;
}

}  // namespace

Heap::Heap(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {
  const Current current(*gpu_);
  check(gpu_->driver, gpu_->driver.eventCreate(&ready_, kEventNoTiming), "cuEventCreate", "DeviceNotFound");
}

Heap::~Heap() {
  const Current current(*gpu_);
  gpu_->driver.streamSynchronize(gpu_->copies);
  staging_.reset();
  small_.reset();
  gpu_->driver.eventDestroy(ready_);
}

Staging& Heap::staging() {
  if (!staging_) staging_ = Staging::make(*gpu_, kPiece);
  return *staging_;
}

// Callers hold the lock and have the context current. 0: there is no memory.
Address Heap::take(uint64_t bytes, Stream stream) {
  const auto& driver = gpu_->driver;
  const uint64_t span = spanOf(bytes);
  if (!span) return 0;
  Address address = 0;
  const Result result =
      gpu_->pool ? driver.memoryAllocateAsync(&address, span, stream) : driver.memoryAllocate(&address, span);
  if (result == kOutOfMemory) return 0;
  check(driver, result, "cuMemAlloc");
  return address;
}

void Heap::give(Address address) {
  if (gpu_->pool)
    gpu_->driver.memoryFreeAsync(address, gpu_->copies);
  else
    gpu_->driver.memoryFree(address);
}

std::shared_ptr<Memory> Heap::own(Address address, uint64_t bytes, bool readOnly,
                                  std::shared_ptr<MemoryCounters> counters) {
  auto memory = Memory::wrap(reinterpret_cast<void*>(address), bytes, readOnly, std::move(counters),
                             [heap = shared_from_this(), address] {
                               const Current current(*heap->gpu_);
                               std::lock_guard lock(heap->mutex_);
                               heap->give(address);
                             });
  memory->access = shared_from_this();
  return memory;
}

std::shared_ptr<Memory> Heap::allocate(uint64_t bytes, std::shared_ptr<MemoryCounters> counters) {
  Address address;
  {
    const Current current(*gpu_);
    std::lock_guard lock(mutex_);
    address = take(bytes, gpu_->copies);
    if (!address) return nullptr;
    const auto& driver = gpu_->driver;
    if (const Result filled = driver.fill(address, 0, spanOf(bytes), gpu_->copies); filled != kSuccess) {
      give(address);
      check(driver, filled, "cuMemsetD8Async");
    }
    pending_ = true;
  }
  return own(address, bytes, false, std::move(counters));
}

std::shared_ptr<Memory> Heap::reserve(uint64_t bytes, Stream stream, std::shared_ptr<MemoryCounters> counters) {
  Address address;
  {
    const Current current(*gpu_);
    std::lock_guard lock(mutex_);
    address = take(bytes, stream);
  }
  return address ? own(address, bytes, true, std::move(counters)) : nullptr;
}

void Heap::read(uint64_t address, void* to, uint64_t bytes) {
  const Current current(*gpu_);
  std::lock_guard lock(mutex_);
  const auto& driver = gpu_->driver;
  auto& stage = staging();
  // The next piece is on its way while the host takes one.
  const auto start = [&](uint64_t at, int one) {
    check(driver, driver.copyOut(stage.pieces[one], address + at, std::min(kPiece, bytes - at), gpu_->copies),
          "cuMemcpyDtoHAsync");
    stage.record(one, gpu_->copies);
  };
  if (bytes) start(0, 0);
  for (uint64_t at = 0, piece = 0; at < bytes; at += kPiece, ++piece) {
    const int one = int(piece % kPieces);
    if (at + kPiece < bytes) start(at + kPiece, int((piece + 1) % kPieces));
    stage.wait(one);
    std::memcpy(static_cast<uint8_t*>(to) + at, stage.pieces[one], std::min(kPiece, bytes - at));
  }
}

// Nothing in flight uses the memory; what is submitted later waits for the copy, and what the host reads is in its stream.
void Heap::writeSoon(uint64_t address, const void* from, uint64_t bytes) {
  if (!small_) small_ = SmallStaging::make(*gpu_, kSmall);
  const int one = nextSmall_;
  small_->wait(one);
  std::memcpy(small_->pieces[one], from, bytes);
  pending_ = true;
  check(gpu_->driver, gpu_->driver.copyIn(address, small_->pieces[one], bytes, gpu_->copies), "cuMemcpyHtoDAsync");
  small_->record(one, gpu_->copies);
  nextSmall_ = (one + 1) % SmallStaging::kPieces;
}

void Heap::write(uint64_t address, const void* from, uint64_t bytes) {
  const Current current(*gpu_);
  std::lock_guard lock(mutex_);
  if (bytes <= kSmall) return writeSoon(address, from, bytes);
  const auto& driver = gpu_->driver;
  auto& stage = staging();
  for (uint64_t at = 0, piece = 0; at < bytes; at += kPiece, ++piece) {
    const int one = int(piece % kPieces);
    const uint64_t size = std::min(kPiece, bytes - at);
    if (piece >= kPieces) stage.wait(one);
    std::memcpy(stage.pieces[one], static_cast<const uint8_t*>(from) + at, size);
    check(driver, driver.copyIn(address + at, stage.pieces[one], size, gpu_->copies), "cuMemcpyHtoDAsync");
    stage.record(one, gpu_->copies);
  }
  check(driver, driver.streamSynchronize(gpu_->copies), "cuStreamSynchronize");
}

void Heap::orderBefore(Stream stream) {
  std::lock_guard lock(mutex_);
  if (!pending_) return;
  const auto& driver = gpu_->driver;
  check(driver, driver.eventRecord(ready_, gpu_->copies), "cuEventRecord");
  check(driver, driver.streamWaitEvent(stream, ready_, 0), "cuStreamWaitEvent");
  pending_ = false;
}

}  // namespace mlxts::cuda
