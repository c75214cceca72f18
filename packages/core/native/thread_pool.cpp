#include "thread_pool.h"

#include <chrono>
#include <map>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mlxts {

namespace {

constexpr uint64_t kIndexMask = (1u << 20) - 1;
constexpr auto kSpin = std::chrono::microseconds(50);

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
  const uint64_t seen = state_.load(std::memory_order_relaxed);
  if ((seen & kIndexMask) >= ((seen >> 20) & kIndexMask)) return false;
  const uint64_t claim = state_.fetch_add(1, std::memory_order_acq_rel);
  const uint32_t index = uint32_t(claim & kIndexMask), count = uint32_t((claim >> 20) & kIndexMask);
  if (index >= count) return false;
  const Job job = jobs_[(claim >> 40) & 1];
  job.chunk(job.context, index, thread);
  if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == count) done_.notify_all();
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
    const uint64_t seen = state_.load();
    if ((seen & kIndexMask) >= ((seen >> 20) & kIndexMask) && !stopping_) wake_.wait(ticket);
    sleepers_.fetch_sub(1);
    idleSince = std::chrono::steady_clock::now();
  }
}

void ThreadPool::run(uint32_t count, Chunk chunk, void* context) {
  if (count == 0) return;
  if (count == 1 || workers_.empty()) {
    for (uint32_t i = 0; i < count; ++i) chunk(context, i, 0);
    return;
  }
  std::lock_guard lock(running_);
  const uint64_t epoch = (state_.load(std::memory_order_relaxed) >> 40) + 1;
  jobs_[epoch & 1] = {chunk, context};
  done_.store(0, std::memory_order_relaxed);
  state_.store((epoch << 40) | (uint64_t(count) << 20));
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
