#include "thread_pool.h"

#include <algorithm>
#include <chrono>
#include <map>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif

namespace mlxts {

namespace {

constexpr auto kSpin = std::chrono::microseconds(50);

constexpr uint32_t chunkCount(uint64_t state) { return uint32_t(state >> 32); }
constexpr uint32_t nextChunk(uint64_t state) { return uint32_t(state); }
constexpr bool hasChunks(uint64_t state) { return nextChunk(state) < chunkCount(state); }

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

std::shared_ptr<ThreadPool> ThreadPool::shared(unsigned threads) {
  static std::mutex mutex;
  static std::map<unsigned, std::weak_ptr<ThreadPool>> pools;
  std::lock_guard lock(mutex);
  auto pool = pools[threads].lock();
  if (!pool) pools[threads] = pool = std::make_shared<ThreadPool>(threads);
  return pool;
}

ThreadPool::ThreadPool(unsigned threads) {
  try {
    for (unsigned i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (...) {
    stop();  // the system may refuse a thread
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping_ = true;
  wake_.fetch_add(1);
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

bool ThreadPool::take(unsigned thread) {
  if (!hasChunks(state_.load(std::memory_order_relaxed))) return false;
  const uint64_t claim = state_.fetch_add(1, std::memory_order_acq_rel);
  if (!hasChunks(claim)) return false;
  job_.chunk(job_.context, job_.first + nextChunk(claim), thread);
  if (done_.fetch_add(1) + 1 == chunkCount(claim)) done_.notify_all();
  return true;
}

void ThreadPool::work(unsigned thread) {
  auto idleSince = std::chrono::steady_clock::now();
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (take(thread)) {
      while (take(thread)) {
      }
      idleSince = std::chrono::steady_clock::now();
      continue;
    }
    for (int i = 0; i < 64; ++i) pause();
    if (std::chrono::steady_clock::now() - idleSince < kSpin) continue;
    sleepers_.fetch_add(1);
    const uint32_t ticket = wake_.load();
    // Either this sees the new job, or its publisher sees this sleeper and wakes it.
    if (!hasChunks(state_.load()) && !stopping_) wake_.wait(ticket);
    sleepers_.fetch_sub(1);
    idleSince = std::chrono::steady_clock::now();
  }
}

void ThreadPool::run(uint64_t count, Chunk chunk, void* context) {
  if (count <= 1 || workers_.empty()) {
    for (uint64_t i = 0; i < count; ++i) chunk(context, i, 0);
    return;
  }
  std::lock_guard lock(running_);
  for (uint64_t first = 0; first < count; first += kMaxChunks)
    runJob(uint32_t(std::min<uint64_t>(count - first, kMaxChunks)), {chunk, context, first});
}

void ThreadPool::keepApart() {
#if defined(__linux__)
  const int cpu = sched_getcpu();
  if (cpu < 0 || cpu >= CPU_SETSIZE || cpu == callerCpu_) return;
  callerCpu_ = cpu;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || size_t(CPU_COUNT(&allowed)) <= workers_.size()) return;
  CPU_CLR(cpu, &allowed);
  for (auto& worker : workers_) pthread_setaffinity_np(worker.native_handle(), sizeof allowed, &allowed);
#endif
}

void ThreadPool::runJob(uint32_t count, const Job& job) {
  keepApart();
  job_ = job;
  done_.store(0, std::memory_order_relaxed);
  state_.store(uint64_t(count) << 32);
  if (sleepers_.load() > 0) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }
  while (take(0)) {
  }
  for (int i = 0; i < 20000; ++i) {
    if (done_.load(std::memory_order_acquire) == count) return;
    pause();
  }
  for (uint32_t done; (done = done_.load(std::memory_order_acquire)) != count;) done_.wait(done);
}

}  // namespace mlxts
