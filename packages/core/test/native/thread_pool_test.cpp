// Tests of the thread pool: every chunk runs once, for any number of chunks; several callers; workers apart from their caller; its end. Prints what was done;
// the exit code is the number of faults.
#include "thread_pool.h"

#include <cstdio>
#include <cstring>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

using mlxts::ThreadPool;

namespace {

std::atomic<int> faults{0};

void check(bool holds, const char* what, unsigned threads, uint64_t count) {
  if (holds) return;
  if (faults.fetch_add(1) < 10)
    std::printf("FAULT: %s (%u threads, %llu chunks)\n", what, threads, (unsigned long long)count);
}

// A job that counts how often each of its chunks runs. It is destroyed when run() has returned, as a device's groups are.
struct Counted {
  explicit Counted(uint64_t count) : times(count) {}
  std::vector<std::atomic<uint8_t>> times;
  std::atomic<uint64_t> outOfRange{0};  // chunks or threads
  unsigned threads = 0;

  static void chunks(void* context, uint64_t begin, uint64_t end, unsigned thread) {
    auto& self = *static_cast<Counted*>(context);
    if (begin >= end || end > self.times.size() || thread >= self.threads) {
      self.outOfRange.fetch_add(1);
      return;
    }
    for (uint64_t i = begin; i < end; ++i) self.times[i].fetch_add(1, std::memory_order_relaxed);
  }

  void run(ThreadPool& pool) {
    threads = pool.threads();
    pool.run(times.size(), chunks, this);
    check(outOfRange == 0, "a chunk or thread is out of range", threads, times.size());
    uint64_t wrong = 0;
    for (const auto& n : times) wrong += n.load(std::memory_order_relaxed) != 1;
    check(wrong == 0, "chunks did not run exactly once", threads, times.size());
  }
};

// Numbers of chunks around the most of one job, and beyond.
void boundaries() {
  constexpr uint64_t most = ThreadPool::kMaxChunks;
  for (const unsigned threads : {1u, 3u, 64u}) {
    ThreadPool pool(threads);
    for (const uint64_t count : {uint64_t(0), uint64_t(1), uint64_t(2), uint64_t(threads), most - 1, most, most + 1,
                                 most + 2, 2 * most, 2 * most + 7})
      Counted(count).run(pool);
  }
  std::printf("boundaries\n");
}

// Small jobs one after another: late workers find jobs that have ended and contexts that are destroyed. Sometimes the
// workers are asleep.
void manyJobs() {
  ThreadPool pool(8);
  for (uint32_t i = 0; i < 20000; ++i) {
    Counted(2 + i % 11).run(pool);
    if (i % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::printf("many jobs\n");
}

// Far more threads than chunks: most of them increment past the count of every job.
void manyThreads() {
  ThreadPool pool(256);
  for (uint32_t i = 0; i < 300; ++i) Counted(2 + i % 5).run(pool);
  std::printf("many threads\n");
}

// Devices with as many threads share a pool, each with a queue thread of its own.
void sharedByCallers() {
  std::vector<std::thread> callers;
  for (uint32_t caller = 0; caller < 4; ++caller)
    callers.emplace_back([caller] {
      for (uint32_t round = 0; round < 20; ++round) {
        const auto pool = ThreadPool::shared(4);
        for (uint32_t i = 0; i < 200; ++i) Counted(1 + (i + caller) % 37).run(*pool);
      }
    });
  for (auto& caller : callers) caller.join();
  std::printf("shared by callers\n");
}

// A worker may run on all processors of its caller but the caller's own one, wherever the caller is.
void apart() {
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  ThreadPool pool(2);
  struct Seen {
    std::atomic<bool> done{false};
    cpu_set_t processors;
  };
  const auto look = [](void* context, uint64_t, uint64_t, unsigned thread) {
    auto& seen = *static_cast<Seen*>(context);
    if (thread == 0 || seen.done) return;
    sched_getaffinity(0, sizeof seen.processors, &seen.processors);
    seen.done = true;
  };
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&allowed) > 1; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    // The caller goes there, and may then go on anywhere: where it is when the job begins is not known.
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    sched_setaffinity(0, sizeof allowed, &allowed);
    Seen seen;
    while (!seen.done) pool.run(1000, look, &seen);
    cpu_set_t both;
    CPU_AND(&both, &seen.processors, &allowed);
    check(CPU_EQUAL(&both, &seen.processors), "a worker may run where its caller may not", 2, 1000);
    check(CPU_COUNT(&both) == CPU_COUNT(&allowed) - 1, "a worker does not keep off one processor", 2, 1000);
  }
#endif
  std::printf("apart\n");
}

// The end while workers start, spin, sleep, or have just done the last chunk.
void endings() {
  for (uint32_t i = 0; i < 400; ++i) {
    ThreadPool pool(2 + i % 6);
    if (i % 4 != 0) Counted(1 + i % 50).run(pool);
    if (i % 20 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::printf("endings\n");
}

}  // namespace

int main() {
  boundaries();
  manyJobs();
  manyThreads();
  sharedByCallers();
  apart();
  endings();
  return faults.load();
}
