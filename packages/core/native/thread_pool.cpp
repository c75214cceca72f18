#include "thread_pool.h"

#include <algorithm>
#include <map>

#include "spin.h"

namespace mlxts {

std::shared_ptr<ThreadPool> ThreadPool::shared(unsigned threads) {
  static std::mutex mutex;
  static std::map<unsigned, std::weak_ptr<ThreadPool>> pools;
  std::lock_guard lock(mutex);
  auto pool = pools[threads].lock();
  if (!pool) pools[threads] = pool = std::make_shared<ThreadPool>(threads);
  return pool;
}

ThreadPool::ThreadPool(unsigned threads) : shares_(threads) {
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

bool ThreadPool::take(Share& share, bool first, Range& taken) {
  for (Range left = share.left.load(std::memory_order_relaxed); left.begin < left.end;) {
    const uint32_t count = (left.end - left.begin + 2) / 3;
    Range rest = left;
    if (first)
      taken = {left.begin, rest.begin += count};
    else
      taken = {rest.end -= count, left.end};
    if (share.left.compare_exchange_weak(left, rest, std::memory_order_acquire, std::memory_order_relaxed)) return true;
  }
  return false;
}

void ThreadPool::runChunks(unsigned thread) {
  const unsigned threads = this->threads();
  for (unsigned i = 0; i < threads; ++i)
    for (Range taken; take(shares_[(thread + i) % threads], i == 0, taken);) {
      const uint32_t count = job_.count;  // after the last chunk, the job may be another one
      job_.chunks(job_.context, job_.first + taken.begin, job_.first + taken.end, thread);
      const uint32_t done = taken.end - taken.begin;
      if (done_.fetch_add(done) + done == count) done_.notify_all();
    }
}

void ThreadPool::work(unsigned thread) {
  for (uint32_t seen = 0; !stopping_;) {
    const auto called = [&] { return jobs_.load() != seen || stopping_.load(std::memory_order_relaxed); };
    if (!spinUntil(called, kBetweenSubmissions)) {
      sleepers_.fetch_add(1);
      const uint32_t ticket = wake_.load();
      // Either this sees the new job, or its publisher sees this sleeper and wakes it.
      if (!called()) wake_.wait(ticket);
      sleepers_.fetch_sub(1);
    }
    seen = jobs_.load();
    runChunks(thread);
  }
}

void ThreadPool::run(uint64_t count, Chunks chunks, void* context) {
  if (count <= 1 || workers_.empty()) {
    if (count > 0) chunks(context, 0, count, 0);
    return;
  }
  std::lock_guard lock(running_);
  for (uint64_t first = 0; first < count; first += kMaxChunks)
    runJob({chunks, context, first, uint32_t(std::min<uint64_t>(count - first, kMaxChunks))});
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

void ThreadPool::runJob(const Job& job) {
  const uint64_t count = job.count;
  keepApart();
  job_ = job;
  done_.store(0, std::memory_order_relaxed);
  const uint64_t threads = shares_.size();
  for (uint64_t i = 0; i < threads; ++i)
    shares_[i].left.store({uint32_t(count * i / threads), uint32_t(count * (i + 1) / threads)},
                          std::memory_order_release);
  jobs_.fetch_add(1);
  if (sleepers_.load() > 0) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }
  runChunks(0);
  if (spinUntil([&] { return done_.load(std::memory_order_acquire) == count; }, kBetweenSubmissions)) return;
  for (uint32_t done; (done = done_.load(std::memory_order_acquire)) != count;) done_.wait(done);
}

}  // namespace mlxts
