// Files that are read into memory.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "device.h"

namespace mlxts {

// Reads `bytes` bytes from `at` on. Raises the failure of a file that cannot be read, or has become shorter.
void readPart(const File& file, uint8_t* to, uint64_t at, uint64_t bytes);

// How far a load has come, and what ended it: what its threads share.
class LoadProgress {
 public:
  LoadProgress(uint64_t bytes, std::function<void()> moved) : bytes(bytes), moved_(std::move(moved)) {}
  const uint64_t bytes;
  std::atomic<bool> stopping{false};
  uint64_t loaded() const { return loaded_; }
  bool complete() const { return loaded_ == bytes; }
  // So many more bytes are there.
  void arrived(uint64_t more);
  // The first failure is the load's.
  void fail(const Failure& failure);
  void raise() const {
    if (failure_) throw Failure(*failure_);
  }
  void tell() const { moved_(); }

 private:
  const std::function<void()> moved_;
  std::atomic<uint64_t> loaded_{0};
  std::mutex mutex_;
  std::optional<Failure> failure_;
};

}  // namespace mlxts
