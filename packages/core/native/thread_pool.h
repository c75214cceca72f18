// A persistent pool of threads. Workers look for the next job for a while (spin.h), then sleep. The caller of run() takes
// chunks, too.
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
  // Runs the chunks begin … end − 1.
  using Chunks = void (*)(void* context, uint64_t begin, uint64_t end, unsigned thread);
  // More chunks are run in parts of this many.
  static constexpr uint32_t kMaxChunks = 1u << 20;

  // The process-wide pool of that size, made on first use and ended with its last user.
  static std::shared_ptr<ThreadPool> shared(unsigned threads);
  explicit ThreadPool(unsigned threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;

  unsigned threads() const { return unsigned(shares_.size()); }
  // Calls chunks(context, begin, end, thread) for ranges that make up 0 … count − 1, in any order, and returns when all
  // are done.
  void run(uint64_t count, Chunks chunks, void* context);

 private:
  struct Job {
    Chunks chunks = nullptr;
    void* context = nullptr;
    uint64_t first = 0;  // index of the job's chunk 0 among those of the run
    uint32_t count = 0;
  };
  // begin … end − 1, in one word.
  struct alignas(8) Range {
    uint32_t begin, end;
  };
  // The chunks of a thread, one after another in memory, as far as nobody has taken them. The thread takes the first
  // ones; when it has none left, it takes the last ones of others. It is a third of what is left each time: few calls
  // at first, since each costs something, and short ones at the end, so that threads end together.
  struct alignas(64) Share {
    std::atomic<Range> left{Range{0, 0}};
  };
  void work(unsigned thread);
  void stop();
  // False: none is left.
  static bool take(Share& share, bool first, Range& taken);
  // Runs chunks until none is left.
  void runChunks(unsigned thread);
  // On Linux, where there are processors for all threads: workers keep off the one that the caller of run() is on. A
  // worker that is woken while other programs have all processors may otherwise wait for the caller's until the job is
  // done.
  void keepApart();
  void runJob(const Job& job);

  // `job_` changes only when all chunks of the job are done, so a thread that has taken a chunk may read it until it has
  // run that chunk. A share that a thread finds may be one of a later job than the thread was called for: what it takes is
  // a chunk of that job.
  std::vector<Share> shares_;  // by thread
  Job job_;
  alignas(64) std::atomic<uint32_t> jobs_{0};  // how many there have been
  std::atomic<uint32_t> sleepers_{0}, wake_{0};
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<uint32_t> done_{0};  // chunks of the job
  std::mutex running_;
  int callerCpu_ = -1;  // which workers keep off; under running_
  std::vector<std::thread> workers_;
};

}  // namespace mlxts
