#include "file_load.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

namespace mlxts {

namespace {

constexpr uint64_t kPiece = 8u << 20;
constexpr uint64_t kTold = 64u << 20;  // bytes between two reports

// A file that one thread reads into memory of the host.
class HostLoad : public FileLoad {
 public:
  HostLoad(File file, std::shared_ptr<Memory> memory, std::function<void()> moved)
      : file_(std::move(file)), progress_(memory->bytes(), std::move(moved)), memory_(std::move(memory)) {
    try {
      reader_ = std::thread([this] { serve(); });
    } catch (const std::system_error& error) {
      throw Failure("BufferAllocation", error.what(), std::to_string(progress_.bytes));
    }
  }
  ~HostLoad() override {
    stop();
    reader_.join();
  }
  uint64_t loaded() const override { return progress_.loaded(); }
  bool ended() const override { return ended_; }
  void stop() override { progress_.stopping = true; }
  std::shared_ptr<Memory> take() override {
    progress_.raise();
    return progress_.complete() ? std::move(memory_) : nullptr;
  }

 private:
  void serve() {
    try {
      for (uint64_t at = 0; at < progress_.bytes && !progress_.stopping; at += kPiece) {
        const uint64_t size = std::min(kPiece, progress_.bytes - at);
        readPart(file_, memory_->data() + at, at, size);
        progress_.arrived(size);
      }
    } catch (const Failure& failure) {
      progress_.fail(failure);
    }
    memory_->freeze();
    ended_ = true;
    progress_.tell();
  }

  const File file_;
  LoadProgress progress_;
  std::shared_ptr<Memory> memory_;
  std::atomic<bool> ended_{false};
  std::thread reader_;
};

}  // namespace

void readPart(const File& file, uint8_t* to, uint64_t at, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t got = pread(file.descriptor, to + done, bytes - done, off_t(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw fileFailure(got < 0 ? errno : ESTALE);
    done += uint64_t(got);
  }
}

void LoadProgress::arrived(uint64_t more) {
  const uint64_t before = loaded_.fetch_add(more);
  if (before / kTold != (before + more) / kTold) moved_();
}

void LoadProgress::fail(const Failure& failure) {
  std::lock_guard lock(mutex_);
  if (!failure_) failure_ = failure;
  stopping = true;
}

std::unique_ptr<FileLoad> Device::loadFile(const std::string& path, uint64_t bytes, std::function<void()> moved) {
  int error = 0;
  File file = openPlainFile(path, bytes, error);
  if (!file) throw fileFailure(error);
  auto memory = allocate(bytes);
  if (!memory) throw Failure("BufferAllocation", "no memory for the file", std::to_string(bytes));
  return std::make_unique<HostLoad>(std::move(file), std::move(memory), std::move(moved));
}

}  // namespace mlxts
