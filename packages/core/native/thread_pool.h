// A persistent pool of threads. Workers spin briefly for the next job, then sleep. The caller of run() takes chunks,
// too.
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
  using Chunk = void (*)(void* context, uint64_t index, unsigned thread);
  // More chunks are run in parts of this many.
  static constexpr uint32_t kMaxChunks = 1u << 20;

  // The process-wide pool of that size, made on first use and ended with its last user.
  static std::shared_ptr<ThreadPool> shared(unsigned threads);
  explicit ThreadPool(unsigned threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;

  unsigned threads() const { return unsigned(workers_.size()) + 1; }
  // Calls chunk(context, i, thread) once for each i < count, in any order, and returns when all are done.
  void run(uint64_t count, Chunk chunk, void* context);

 private:
  struct Job {
    Chunk chunk = nullptr;
    void* context = nullptr;
    uint64_t first = 0;  // index of the job's chunk 0 among those of the run
  };
  void work(unsigned thread);
  void stop();
  bool take(unsigned thread);
  // On Linux, where there are processors for all threads: workers keep off the one that the caller of run() is on. A
  // worker that is woken while other programs have all processors may otherwise wait for the caller's until the job is
  // done.
  void keepApart();
  void runJob(uint32_t count, const Job& job);

  // The upper half is the chunk count of the current job, the lower half its next chunk: one fetch_add claims a chunk
  // of the job that is current at that moment. `job_` changes only when all chunks of the job are done, so a thread
  // with a claim may read it at any time. A thread increments past the count at most once in each job, so that the
  // lower half never carries into the upper one.
  std::atomic<uint64_t> state_{0};
  Job job_;
  std::atomic<uint32_t> done_{0};
  std::atomic<uint32_t> sleepers_{0}, wake_{0};
  std::atomic<bool> stopping_{false};
  std::mutex running_;
  int callerCpu_ = -1;  // which workers keep off; under running_
  std::vector<std::thread> workers_;
};

}  // namespace mlxts
