#include "cuda_memory.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace mlxts::cuda {

namespace {

constexpr uint64_t kPiece = 8u << 20;
constexpr int kPieces = 2;  // one is filled while another is copied

}  // namespace

// Pinned memory, and for each piece when the GPU has read it.
struct Heap::Staging {
  const Gpu& gpu;
  uint8_t* pieces[kPieces] = {};
  Event read[kPieces] = {};

  explicit Staging(const Gpu& gpu) : gpu(gpu) {}
  // Failure code BufferAllocation when there is no pinned memory.
  void allocate() {
    for (int i = 0; i < kPieces; ++i) {
      void* piece = nullptr;
      const Result result = gpu.driver.hostAllocate(&piece, kPiece, 0);
      if (result == kOutOfMemory)
        throw Failure("BufferAllocation", "cuMemHostAlloc: " + gpu.driver.describe(result), std::to_string(kPiece));
      check(gpu.driver, result, "cuMemHostAlloc");
      pieces[i] = static_cast<uint8_t*>(piece);
      check(gpu.driver, gpu.driver.eventCreate(&read[i], kEventNoTiming), "cuEventCreate");
    }
  }
  ~Staging() {
    for (int i = 0; i < kPieces; ++i) {
      if (read[i]) gpu.driver.eventDestroy(read[i]);
      if (pieces[i]) gpu.driver.hostFree(pieces[i]);
    }
  }
  Staging(const Staging&) = delete;
};

Heap::Heap(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {
  const Current current(*gpu_);
  check(gpu_->driver, gpu_->driver.eventCreate(&allocated_, kEventNoTiming), "cuEventCreate", "DeviceNotFound");
}

Heap::~Heap() {
  const Current current(*gpu_);
  gpu_->driver.streamSynchronize(gpu_->copies);
  staging_.reset();
  gpu_->driver.eventDestroy(allocated_);
}

Heap::Staging& Heap::staging() {
  if (!staging_) {
    auto made = std::make_unique<Staging>(*gpu_);
    made->allocate();
    staging_ = std::move(made);
  }
  return *staging_;
}

// Callers hold the lock and have the context current. 0: there is no memory.
Address Heap::take(uint64_t bytes, bool zeros) {
  const auto& driver = gpu_->driver;
  const uint64_t span = (std::max<uint64_t>(bytes, 1) + 15) / 16 * 16;
  if (span < bytes) return 0;
  Address address = 0;
  const Result result =
      gpu_->pool ? driver.memoryAllocateAsync(&address, span, gpu_->copies) : driver.memoryAllocate(&address, span);
  if (result == kOutOfMemory) return 0;
  check(driver, result, "cuMemAlloc");
  if (zeros) {
    if (const Result filled = driver.fill(address, 0, span, gpu_->copies); filled != kSuccess) {
      give(address);
      check(driver, filled, "cuMemsetD8Async");
    }
  }
  pending_ = true;
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
    address = take(bytes, true);
  }
  return address ? own(address, bytes, false, std::move(counters)) : nullptr;
}

template <typename Fill>
bool Heap::copyIn(Address to, uint64_t bytes, Fill fill) {
  const auto& driver = gpu_->driver;
  auto& stage = staging();
  bool filled = true;
  for (uint64_t at = 0, piece = 0; at < bytes && filled; at += kPiece, ++piece) {
    const int one = int(piece % kPieces);
    const uint64_t size = std::min(kPiece, bytes - at);
    if (piece >= kPieces) check(driver, driver.eventSynchronize(stage.read[one]), "cuEventSynchronize");
    filled = fill(stage.pieces[one], at, size);
    if (!filled) break;
    check(driver, driver.copyIn(to + at, stage.pieces[one], size, gpu_->copies), "cuMemcpyHtoDAsync");
    check(driver, driver.eventRecord(stage.read[one], gpu_->copies), "cuEventRecord");
  }
  check(driver, driver.streamSynchronize(gpu_->copies), "cuStreamSynchronize");
  return filled;
}

std::shared_ptr<Memory> Heap::copyOfFile(const std::string& path, uint64_t bytes,
                                         std::shared_ptr<MemoryCounters> counters, int& error) {
  const File file = openPlainFile(path, bytes, error);
  if (!file) return nullptr;
  const Current current(*gpu_);
  std::shared_ptr<Memory> memory;
  std::unique_lock lock(mutex_);
  const Address address = take(bytes, false);
  if (!address) {
    error = ENOMEM;
    return nullptr;
  }
  lock.unlock();
  memory = own(address, bytes, true, std::move(counters));
  lock.lock();
  const bool whole = copyIn(address, bytes, [&](uint8_t* piece, uint64_t at, uint64_t size) {
    for (uint64_t done = 0; done < size;) {
      const ssize_t got = pread(file.descriptor, piece + done, size - done, off_t(at + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        error = got < 0 ? errno : ESTALE;
        return false;
      }
      done += uint64_t(got);
    }
    return true;
  });
  lock.unlock();
  if (!whole) memory.reset();
  return memory;
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
    check(driver, driver.eventRecord(stage.read[one], gpu_->copies), "cuEventRecord");
  };
  if (bytes) start(0, 0);
  for (uint64_t at = 0, piece = 0; at < bytes; at += kPiece, ++piece) {
    const int one = int(piece % kPieces);
    if (at + kPiece < bytes) start(at + kPiece, int((piece + 1) % kPieces));
    check(driver, driver.eventSynchronize(stage.read[one]), "cuEventSynchronize");
    std::memcpy(static_cast<uint8_t*>(to) + at, stage.pieces[one], std::min(kPiece, bytes - at));
  }
}

void Heap::write(uint64_t address, const void* from, uint64_t bytes) {
  const Current current(*gpu_);
  std::lock_guard lock(mutex_);
  copyIn(address, bytes, [&](uint8_t* piece, uint64_t at, uint64_t size) {
    std::memcpy(piece, static_cast<const uint8_t*>(from) + at, size);
    return true;
  });
}

void Heap::orderBefore(Stream stream) {
  std::lock_guard lock(mutex_);
  if (!pending_) return;
  const auto& driver = gpu_->driver;
  check(driver, driver.eventRecord(allocated_, gpu_->copies), "cuEventRecord");
  check(driver, driver.streamWaitEvent(stream, allocated_, 0), "cuStreamWaitEvent");
  pending_ = false;
}

}  // namespace mlxts::cuda
