#include <algorithm>
#include <chrono>

#include "standin.h"

namespace standin {

void runNodes(const std::vector<Node>& nodes, Random& random) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<size_t> ready;
  std::vector<size_t> waiting(nodes.size());
  size_t left = nodes.size();
  for (size_t i = 0; i < nodes.size(); ++i)
    if ((waiting[i] = nodes[i].after.size()) == 0) ready.push_back(i);
  Result stopped = kSuccess;
  const auto work = [&](uint64_t seed) {
    Random own(seed);
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return !ready.empty() || left == 0; });
      if (left == 0) return;
      std::swap(ready[own() % ready.size()], ready.back());
      const size_t one = ready.back();
      ready.pop_back();
      lock.unlock();
      Result result = kSuccess;
      try {
        nodes[one].run(own);
      } catch (const Stopped& stop) {
        result = stop.result;
      }
      lock.lock();
      --left;
      if (result != kSuccess) stopped = result, left = 0;
      for (size_t i = 0; left > 0 && i < nodes.size(); ++i)
        for (const size_t before : nodes[i].after)
          if (before == one && --waiting[i] == 0) ready.push_back(i);
      if (left == 0) ready.clear();
      changed.notify_all();
      if (left == 0) return;
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min<size_t>(3, nodes.size()); ++i) others.emplace_back(work, random());
  work(random());
  for (auto& other : others) other.join();
  if (stopped != kSuccess) throw Stopped{stopped};
}

}  // namespace standin

namespace mlxts::cuda {

using namespace standin;

extern ContextOf primary;

StreamOf::StreamOf(uint64_t seed) : random(seed), thread_([this] { serve(); }) {}

StreamOf::~StreamOf() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StreamOf::add(std::function<void()> task, bool always) {
  {
    std::lock_guard lock(mutex_);
    tasks_.emplace_back(std::move(task), always);
  }
  changed_.notify_all();
}

void StreamOf::synchronize() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return tasks_.empty() && !busy_; });
}

void StreamOf::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    auto [task, always] = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    lock.unlock();
    if (const unsigned most = settings().delay; most > 0 && random() % 4 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % most));
    if (always || primary.lost == kSuccess) {
      try {
        task();
      } catch (const Stopped& stop) {
        primary.lost = stop.result;
      }
    }
    task = nullptr;
    lock.lock();
    busy_ = false;
    if (tasks_.empty()) idle_.notify_all();
  }
}

}  // namespace mlxts::cuda
