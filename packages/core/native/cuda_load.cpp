#include "cuda_load.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace mlxts::cuda {

namespace {

constexpr uint64_t kPiece = 8u << 20;  // that a reader takes at a time
constexpr uint64_t kTold = 64u << 20;  // bytes between two reports
constexpr uint64_t kReaders = 4;       // one thread alone reads a file more slowly than a GPU takes it

// A stream that is no other's: what the host reads and writes meanwhile does not wait for the file.
struct OwnStream {
  const std::shared_ptr<Gpu> gpu;
  Stream stream = nullptr;
  explicit OwnStream(std::shared_ptr<Gpu> of) : gpu(std::move(of)) {
    const Current current(*gpu);
    check(gpu->driver, gpu->driver.streamCreate(&stream, kStreamNonBlocking), "cuStreamCreate");
  }
  ~OwnStream() {
    const Current current(*gpu);
    gpu->driver.streamDestroy(stream);
  }
  OwnStream(const OwnStream&) = delete;
};

class Load : public FileLoad {
 public:
  Load(std::shared_ptr<Gpu> gpu, Heap& heap, File file, uint64_t bytes, std::shared_ptr<MemoryCounters> counters,
       std::function<void()> moved)
      : gpu_(std::move(gpu)), file_(std::move(file)), bytes_(bytes), moved_(std::move(moved)), copies_(gpu_) {
    memory_ = heap.reserve(bytes, copies_.stream, std::move(counters));
    if (!memory_) throw Failure("BufferAllocation", "the GPU has no memory for the file", std::to_string(bytes));
    const uint64_t readers = std::min(kReaders, (bytes + kPiece - 1) / kPiece);
    readers_.reserve(readers);
    for (uint64_t i = 0; i < readers; ++i) {
      ++running_;
      try {
        readers_.emplace_back([this] { serve(); });
      } catch (const std::exception& error) {  // the system has no thread left
        if (readers_.empty()) fail(Failure("BufferAllocation", error.what(), std::to_string(bytes)));
        --running_;
        break;
      }
    }
    leave();
  }
  ~Load() override {
    stop();
    for (auto& reader : readers_) reader.join();
    const Current current(*gpu_);
    gpu_->driver.streamSynchronize(copies_.stream);  // without a reader the memory may still be on its way
  }

  uint64_t loaded() const override { return loaded_; }
  bool ended() const override { return running_ == 0; }
  void stop() override { stopping_ = true; }
  std::shared_ptr<Memory> take() override {
    if (failure_) throw Failure(*failure_);
    return loaded_ == bytes_ ? std::move(memory_) : nullptr;
  }

 private:
  // Of one reader: takes pieces until there are no more.
  void serve() {
    const Current current(*gpu_);
    std::unique_ptr<Staging> stage;
    try {
      stage = Staging::make(*gpu_, std::min(kPiece, bytes_), kEventNoTiming | kEventBlockingSync);
      copy(*stage);
    } catch (const Failure& failure) {
      fail(failure);
    } catch (const std::exception& error) {  // the host has no memory left
      fail(Failure("BufferAllocation", error.what(), std::to_string(kPiece)));
    }
    // The GPU may still read the pieces of a load that has failed.
    gpu_->driver.streamSynchronize(copies_.stream);
    stage.reset();
    leave();
  }

  void copy(const Staging& stage) {
    const auto& driver = gpu_->driver;
    const Address to = reinterpret_cast<Address>(memory_->data());
    uint64_t underWay[Staging::kPieces] = {};
    const auto arrive = [&](int one) {
      if (!underWay[one]) return;
      stage.wait(one);
      arrived(std::exchange(underWay[one], 0));
    };
    for (int one = 0; !stopping_; one = (one + 1) % Staging::kPieces) {
      const uint64_t at = next_.fetch_add(kPiece);
      if (at >= bytes_) break;
      arrive(one);
      const uint64_t size = std::min(kPiece, bytes_ - at);
      read(stage.pieces[one], at, size);
      check(driver, driver.copyIn(to + at, stage.pieces[one], size, copies_.stream), "cuMemcpyHtoDAsync");
      stage.record(one, copies_.stream);
      underWay[one] = size;
    }
    for (int one = 0; one < Staging::kPieces; ++one) arrive(one);
  }

  void read(uint8_t* to, uint64_t at, uint64_t size) const {
    for (uint64_t done = 0; done < size;) {
      const ssize_t got = pread(file_.descriptor, to + done, size - done, off_t(at + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) throw fileFailure(got < 0 ? errno : ESTALE);
      done += uint64_t(got);
    }
  }

  void arrived(uint64_t bytes) {
    const uint64_t before = loaded_.fetch_add(bytes);
    if (before / kTold != (before + bytes) / kTold) moved_();
  }

  // The first failure is the load's.
  void fail(const Failure& failure) {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = failure;
    stopping_ = true;
  }

  void leave() {
    if (--running_ == 0) moved_();
  }

  const std::shared_ptr<Gpu> gpu_;
  const File file_;
  const uint64_t bytes_;
  const std::function<void()> moved_;
  const OwnStream copies_;
  std::shared_ptr<Memory> memory_;
  std::atomic<uint64_t> next_{0}, loaded_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<int> running_{1};  // readers, and the constructor
  std::mutex mutex_;
  std::optional<Failure> failure_;
  std::vector<std::thread> readers_;
};

}  // namespace

std::unique_ptr<FileLoad> startLoad(std::shared_ptr<Gpu> gpu, Heap& heap, File file, uint64_t bytes,
                                    std::shared_ptr<MemoryCounters> counters, std::function<void()> moved) {
  return std::make_unique<Load>(std::move(gpu), heap, std::move(file), bytes, std::move(counters), std::move(moved));
}

}  // namespace mlxts::cuda
