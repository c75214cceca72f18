// A persistent pool: workers spin briefly for the next job and then sleep. The caller of run() takes part.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace mlxts {

class ThreadPool {
 public:
  using Chunk = void (*)(void* context, uint32_t index, uint32_t thread);
  static constexpr uint32_t kMaxChunks = (1u << 20) - 1024;

  // The process-wide pool of that size, made on first use and ended with its last user.
  static std::shared_ptr<ThreadPool> shared(unsigned threads);
  explicit ThreadPool(unsigned threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;

  unsigned threads() const { return unsigned(workers_.size()) + 1; }
  // Calls chunk(context, i, thread) once for each i < count, in any order, and returns when all are done.
  void run(uint32_t count, Chunk chunk, void* context);

 private:
  struct Job {
    Chunk chunk = nullptr;
    void* context = nullptr;
  };
  void work(unsigned thread);
  void stop();
  bool take(unsigned thread);

  // epoch : 24 | chunk count : 20 | next chunk : 20. One fetch_add claims a chunk of exactly one epoch, so a
  // worker that is late can neither claim a chunk of a finished job nor read a job that is being replaced.
  std::atomic<uint64_t> state_{0};
  Job jobs_[2];
  std::atomic<uint32_t> done_{0};
  std::atomic<uint32_t> sleepers_{0}, wake_{0};
  std::atomic<bool> stopping_{false};
  std::mutex running_;
  std::vector<std::thread> workers_;
};

}  // namespace mlxts
