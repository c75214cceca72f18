#include "cuda_load.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "file_load.h"

namespace mlxts::cuda {

namespace {

constexpr uint64_t kPiece = 8u << 20;  // that a reader takes at a time
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
      : gpu_(std::move(gpu)), file_(std::move(file)), progress_(bytes, std::move(moved)), copies_(gpu_) {
    memory_ = heap.reserve(bytes, copies_.stream, std::move(counters));
    if (!memory_) throw Failure("BufferAllocation", "the GPU has no memory for the file", std::to_string(bytes));
    const uint64_t readers = std::min(kReaders, (bytes + kPiece - 1) / kPiece);
    readers_.reserve(readers);
    for (uint64_t i = 0; i < readers; ++i) {
      ++running_;
      try {
        readers_.emplace_back([this] { serve(); });
      } catch (const std::exception& error) {  // the system has no thread left
        if (readers_.empty()) progress_.fail(Failure("BufferAllocation", error.what(), std::to_string(bytes)));
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

  uint64_t loaded() const override { return progress_.loaded(); }
  bool ended() const override { return running_ == 0; }
  void stop() override { progress_.stopping = true; }
  std::shared_ptr<Memory> take() override {
    progress_.raise();
    return progress_.complete() ? std::move(memory_) : nullptr;
  }

 private:
  // Of one reader: takes pieces until there are no more.
  void serve() {
    const Current current(*gpu_);
    std::unique_ptr<Staging> stage;
    try {
      stage = Staging::make(*gpu_, std::min(kPiece, progress_.bytes), kEventNoTiming | kEventBlockingSync);
      copy(*stage);
    } catch (const Failure& failure) {
      progress_.fail(failure);
    } catch (const std::exception& error) {  // the host has no memory left
      progress_.fail(Failure("BufferAllocation", error.what(), std::to_string(kPiece)));
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
      progress_.arrived(std::exchange(underWay[one], 0));
    };
    for (int one = 0; !progress_.stopping; one = (one + 1) % Staging::kPieces) {
      const uint64_t at = next_.fetch_add(kPiece);
      if (at >= progress_.bytes) break;
      arrive(one);
      const uint64_t size = std::min(kPiece, progress_.bytes - at);
      readPart(file_, stage.pieces[one], at, size);
      check(driver, driver.copyIn(to + at, stage.pieces[one], size, copies_.stream), "cuMemcpyHtoDAsync");
      stage.record(one, copies_.stream);
      underWay[one] = size;
    }
    for (int one = 0; one < Staging::kPieces; ++one) arrive(one);
  }

  void leave() {
    if (--running_ == 0) progress_.tell();
  }

  const std::shared_ptr<Gpu> gpu_;
  const File file_;
  LoadProgress progress_;
  const OwnStream copies_;
  std::shared_ptr<Memory> memory_;
  std::atomic<uint64_t> next_{0};
  std::atomic<int> running_{1};  // readers, and the constructor
  std::vector<std::thread> readers_;
};

}  // namespace

std::unique_ptr<FileLoad> startLoad(std::shared_ptr<Gpu> gpu, Heap& heap, File file, uint64_t bytes,
                                    std::shared_ptr<MemoryCounters> counters, std::function<void()> moved) {
  return std::make_unique<Load>(std::move(gpu), heap, std::move(file), bytes, std::move(counters), std::move(moved));
}

}  // namespace mlxts::cuda
