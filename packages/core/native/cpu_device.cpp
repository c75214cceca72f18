// The CPU device: kernel libraries opened by path, a queue thread that runs submissions in order, and a pool that
// shares the threadgroups of all dispatches between two barriers.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "cpu_info.h"
#include "cpu_kernel.h"
#include "device.h"
#include "spin.h"
#include "thread_pool.h"

namespace mlxts {

namespace {

using Clock = std::chrono::steady_clock;

double microsecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

class CpuLibrary : public Library {
 public:
  explicit CpuLibrary(const std::string& path) : path(path), handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) throw Failure("Io", dlerror(), path);
    const auto abi = reinterpret_cast<int32_t (*)()>(dlsym(handle_, "mlxts_cpu_abi"));
    if (!abi || abi() != MLXTS_CPU_ABI) {
      const std::string found = abi ? std::to_string(abi()) : "none";
      dlclose(handle_);
      throw Failure(
          "Io",
          path + ": kernel ABI must be " + std::to_string(MLXTS_CPU_ABI) + ", got " + found + " - rebuild the library",
          path);
    }
  }
  ~CpuLibrary() override { dlclose(handle_); }
  uint32_t contract(const std::string& kernel) const override {
    const auto known = reinterpret_cast<uint32_t (*)()>(dlsym(handle_, (kernel + "_contract").c_str()));
    return known ? known() : 0;
  }
  MlxtsCpuKernel find(const std::string& symbol) const {
    return reinterpret_cast<MlxtsCpuKernel>(dlsym(handle_, symbol.c_str()));
  }
  const std::string path;

 private:
  void* handle_;
};

struct Pipeline {
  std::shared_ptr<CpuLibrary> library;
  std::string symbol;
  MlxtsCpuKernel kernel;
};

struct Submission {
  uint64_t id;
  std::shared_ptr<const CommandList> list;
  SubmitOptions options;
  std::function<void(Outcome)> done;
};

// A dispatch of the group being run: its launch, and its part of the group's chunks.
struct Prepared {
  MlxtsCpuKernel kernel;
  MlxtsCpuLaunch launch;
  const uint32_t* guards;  // offsets into the scratch
  uint32_t guardCount;
  uint64_t total;
  uint64_t firstChunk;
  uint32_t chunks;
  uint32_t command;
};

// Fills the bytes that a kernel must not write: behind its scratch, and behind each scratch array where the command
// says so. They show a launch rule that asks for too little.
constexpr uint8_t kGuardByte = 0xa5;
constexpr uint8_t kNanByte = 0xff;

bool guarded(const uint8_t* guard) {
  return std::all_of(guard, guard + kGuardBytes, [](uint8_t byte) { return byte == kGuardByte; });
}

// One thread's scratch memory. It grows between jobs, never while a kernel runs.
struct Scratch {
  const Prepared* last = nullptr;  // the dispatch that was last given it, in this job
  std::unique_ptr<void, decltype(&std::free)> memory{nullptr, &std::free};
  size_t bytes = 0;
  bool reserve(size_t needed) {
    if (needed <= bytes) return true;
    memory.reset(std::aligned_alloc(64, (needed + 63) / 64 * 64));
    bytes = memory ? needed : 0;
    return bool(memory);
  }
};

class CpuDevice : public Device {
 public:
  explicit CpuDevice(const CpuOptions& options) : order_(options.order) {
    const auto levels = cpuLevels();
    const std::string level = options.level.empty() ? levels.front() : options.level;
    if (std::find(levels.begin(), levels.end(), level) == levels.end()) {
      std::string all;
      for (const auto& l : levels) all += (all.empty() ? "" : ", ") + l;
      throw Failure("InvalidArgument",
                    "Device.open: `level` must be one of " + all + " on this processor, got " + level, "level");
    }
    const unsigned threads = options.threads ? options.threads : physicalCores();
    pool_ = ThreadPool::shared(threads);
    scratch_.resize(threads);
    info_.kind = "cpu";
    info_.name = cpuName();
    info_.level = level;
    info_.unifiedMemory = true;
    const uint32_t page = uint32_t(sysconf(_SC_PAGESIZE));
    info_.limits = {1024,      1u << 24, 31, 4096, 1, 1, page, threads, uint64_t(sysconf(_SC_PHYS_PAGES)) * page,
                    {0x7fffffff, 0x7fffffff, 0x7fffffff}};
    queue_ = std::thread([this] { serve(); });
  }
  ~CpuDevice() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = submitted_ = true;
    }
    changed_.notify_all();
    queue_.join();
  }

  const DeviceInfo& info() const override { return info_; }
  std::shared_ptr<Memory> allocate(uint64_t bytes) override { return Memory::allocate(bytes, counters); }
  std::shared_ptr<Library> openLibrary(const std::string& path, const std::string&) override {
    return std::make_shared<CpuLibrary>(path);
  }

  uint32_t pipeline(const std::shared_ptr<Library>& library, const std::string& symbol) override {
    auto cpu = std::static_pointer_cast<CpuLibrary>(library);
    const auto key = std::make_pair(cpu.get(), symbol);
    std::lock_guard lock(mutex_);
    if (const auto found = ids_.find(key); found != ids_.end()) return found->second;
    const auto kernel = cpu->find(symbol);
    if (!kernel) throw Failure("KernelNotFound", "kernel `" + symbol + "` not found in " + cpu->path, symbol);
    pipelines_.push_back({cpu, symbol, kernel});
    return ids_[key] = uint32_t(pipelines_.size() - 1);
  }

  uint32_t maxThreads(uint32_t) const override { return info_.limits.maxThreadsPerThreadgroup; }

  void submit(uint64_t id, std::shared_ptr<const CommandList> list, SubmitOptions options,
              std::function<void(Outcome)> done) override {
    {
      std::lock_guard lock(mutex_);
      for (const auto& c : list->commands)
        if (c.kind == CommandKind::dispatch && c.pipeline >= pipelines_.size())
          throw Failure("InvalidArgument",
                        "submit: `pipeline` must be known to this device, got " + std::to_string(c.pipeline));
      waiting_.push_back({id, std::move(list), options, std::move(done)});
      ++pending_;
      submitted_ = true;
    }
    changed_.notify_all();
  }

  void drain() override {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return pending_ == 0; });
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      Submission submission = std::move(waiting_.front());
      waiting_.pop_front();
      submitted_ = !waiting_.empty();
      lock.unlock();
      Outcome outcome;
      try {
        outcome = execute(submission);
      } catch (const std::bad_alloc&) {
        outcome = {};
        outcome.code = "CommandBuffer";
        outcome.cause = "outOfMemory";
        outcome.message = "out of memory";
      }
      outcome.id = submission.id;
      auto done = std::move(submission.done);
      submission.list.reset();  // frees the memory of disposed buffers before the end is reported
      done(std::move(outcome));
      done = nullptr;
      lock.lock();
      if (--pending_ == 0) idle_.notify_all();
      lock.unlock();
      spinUntil([this] { return submitted_.load(std::memory_order_relaxed); }, kBetweenSubmissions);
      lock.lock();
    }
  }

  Outcome execute(const Submission& submission) {
    Outcome outcome;
    const auto start = Clock::now();
    const auto& list = *submission.list;
    if (submission.options.profile) outcome.microseconds.assign(list.tags, 0);
    uint32_t failing = 0;
    for (size_t i = 0; i < list.commands.size() && outcome.code.empty();) {
      const auto& command = list.commands[i];
      if (command.kind == CommandKind::barrier) {
        ++i;
        continue;
      }
      if (command.kind == CommandKind::fill) {
        const auto& b = list.bindings[command.firstBinding];
        std::memset(list.memories[b.memory]->data() + b.offset, int(command.fillByte), b.bytes);
        ++i;
        continue;
      }
      size_t end = i + 1;
      while (!submission.options.profile && end < list.commands.size() &&
             list.commands[end].kind == CommandKind::dispatch)
        ++end;
      const auto groupStart = Clock::now();
      if (!prepare(list, i, end)) {
        outcome.code = "CommandBuffer";
        outcome.message = "no memory for scratch";
        failing = uint32_t(i);
        break;
      }
      failedChunk_.store(kNone, std::memory_order_relaxed);
      pool_->run(
          chunks_,
          [](void* self, uint64_t begin, uint64_t end, unsigned thread) {
            static_cast<CpuDevice*>(self)->runChunks(begin, end, thread);
          },
          this);
      if (submission.options.profile) outcome.microseconds[command.tag] = microsecondsSince(groupStart);
      if (failedChunk_.load(std::memory_order_acquire) != kNone) {
        outcome.code = "InvalidArgument";
        outcome.fault = fault_;
        failing = failingCommand_;
      }
      i = end;
    }
    if (!outcome.code.empty()) {
      outcome.tag = list.commands[failing].tag;
      outcome.cause = outcome.code == "InvalidArgument" ? "invalidResource" : "outOfMemory";
    }
    outcome.milliseconds = microsecondsSince(start) / 1000;
    return outcome;
  }

  bool prepare(const CommandList& list, size_t begin, size_t end) {
    prepared_.clear();
    pointers_.clear();
    lengths_.clear();
    chunks_ = 0;
    size_t bindings = 0, scratchBytes = 0;
    for (size_t i = begin; i < end; ++i) {
      bindings += list.commands[i].bindings;
      scratchBytes = std::max<size_t>(scratchBytes, list.commands[i].scratchBytes);
    }
    for (auto& scratch : scratch_) {
      scratch.last = nullptr;
      if (!scratch.reserve(scratchBytes + kGuardBytes)) return false;
    }
    pointers_.reserve(bindings);  // launches point into these two, which must not be reallocated below
    lengths_.reserve(bindings);
    std::lock_guard lock(mutex_);  // for the pipelines
    for (size_t i = begin; i < end; ++i) {
      const auto& c = list.commands[i];
      Prepared p{};
      p.kernel = pipelines_[c.pipeline].kernel;
      p.launch.buffers = pointers_.data() + pointers_.size();
      p.launch.bytes = lengths_.data() + lengths_.size();
      for (uint32_t b = 0; b < c.bindings; ++b) {
        const auto& binding = list.bindings[c.firstBinding + b];
        pointers_.push_back(binding.memory == kAbsent ? nullptr
                                                      : list.memories[binding.memory]->data() + binding.offset);
        lengths_.push_back(binding.memory == kAbsent ? 0 : binding.bytes);
      }
      p.launch.params = list.params.data() + c.firstParam;
      std::copy_n(c.threadgroups, 3, p.launch.threadgroups);
      p.launch.scratchBytes = c.scratchBytes;
      p.guards = list.guards.data() + c.firstGuard;
      p.guardCount = c.guards;
      p.total = uint64_t(c.threadgroups[0]) * c.threadgroups[1] * c.threadgroups[2];
      // With guards, few threadgroups at a time: each call finds NaN in its scratch, not what others have left.
      p.chunks = uint32_t(std::min<uint64_t>(p.total, uint64_t(pool_->threads()) * (c.guards ? 64 : 16)));
      // Otherwise one thread runs all threadgroups in one chunk, unless they are to run in reverse.
      if (!c.guards && pool_->threads() == 1 && order_ == CpuOptions::Order::forward) p.chunks = 1;
      p.firstChunk = chunks_;
      p.command = uint32_t(i);
      chunks_ += p.chunks;
      prepared_.push_back(p);
    }
    return true;
  }

  void runChunks(uint64_t begin, uint64_t end, unsigned thread) {
    if (order_ == CpuOptions::Order::reverse) {
      for (uint64_t i = begin; i < end; ++i) runCalls(chunks_ - 1 - i, chunks_ - i, thread);
      return;
    }
    runCalls(begin, end, thread);
  }

  // Calls the kernels of the chunks begin … end − 1, each once for those of its dispatch; with guards, for each chunk.
  void runCalls(uint64_t begin, uint64_t end, unsigned thread) {
    auto p = std::upper_bound(prepared_.begin(), prepared_.end(), begin,
                              [](uint64_t chunk, const Prepared& p) { return chunk < p.firstChunk; }) -
             1;
    while (begin < end) {
      const uint64_t rest = p->firstChunk + p->chunks, last = p->guardCount ? begin + 1 : std::min(end, rest);
      runCall(*p, begin, last, thread);
      begin = last;
      if (begin == rest) ++p;
    }
  }

  void runCall(const Prepared& p, uint64_t begin, uint64_t end, unsigned thread) {
    // Chunks before a failed one still run: they may fail, too, and the first failure is reported.
    if (begin > failedChunk_.load(std::memory_order_relaxed)) return;
    MlxtsCpuLaunch launch = p.launch;
    launch.begin = p.total * (begin - p.firstChunk) / p.chunks;
    launch.end = p.total * (end - p.firstChunk) / p.chunks;
    launch.scratch = scratch_[thread].memory.get();
    launch.scratchKept = scratch_[thread].last == &p && p.guardCount == 0;
    scratch_[thread].last = &p;
    MlxtsFault fault = {};
    launch.fault = &fault;
    setGuards(p, launch);
    bool failed = p.kernel(&launch) != 0;
    if (const uint32_t overrun = firstOverrun(p, launch); overrun != kNoGuard) {
      fault = {MLXTS_SCRATCH_OVERRUN, {overrun, 0, 0}};
      failed = true;
    }
    if (failed) {
      std::lock_guard lock(mutex_);
      if (begin > failedChunk_.load(std::memory_order_relaxed)) return;
      fault_ = fault;
      failingCommand_ = p.command;
      failedChunk_.store(begin, std::memory_order_release);
    }
  }

  static constexpr uint32_t kNoGuard = ~0u, kEnd = kNoGuard - 1;

  static void setGuards(const Prepared& p, const MlxtsCpuLaunch& launch) {
    uint8_t* scratch = static_cast<uint8_t*>(launch.scratch);
    // Where arrays are guarded, they hold NaN at first, whatever ran before: results must not depend on their contents.
    if (p.guardCount) std::memset(scratch, kNanByte, launch.scratchBytes);
    for (uint32_t i = 0; i < p.guardCount; ++i) std::memset(scratch + p.guards[i], kGuardByte, kGuardBytes);
    if (launch.scratchBytes) std::memset(scratch + launch.scratchBytes, kGuardByte, kGuardBytes);
  }

  // The number of the first array whose guard has been written to; kEnd stands for the scratch as a whole.
  static uint32_t firstOverrun(const Prepared& p, const MlxtsCpuLaunch& launch) {
    const uint8_t* scratch = static_cast<const uint8_t*>(launch.scratch);
    for (uint32_t i = 0; i < p.guardCount; ++i)
      if (!guarded(scratch + p.guards[i])) return i;
    if (launch.scratchBytes && !guarded(scratch + launch.scratchBytes)) return kEnd;
    return kNoGuard;
  }

  DeviceInfo info_;
  CpuOptions::Order order_;
  std::shared_ptr<ThreadPool> pool_;
  std::vector<Scratch> scratch_;

  std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::deque<Pipeline> pipelines_;
  std::map<std::pair<CpuLibrary*, std::string>, uint32_t> ids_;
  std::deque<Submission> waiting_;
  uint64_t pending_ = 0;
  bool stopping_ = false;
  std::atomic<bool> submitted_{false};  // whether the queue thread has something to do; written under mutex_

  // The group being run. The queue thread writes it between jobs; chunks read it.
  std::vector<Prepared> prepared_;
  std::vector<void*> pointers_;
  std::vector<uint64_t> lengths_;
  uint64_t chunks_ = 0;
  static constexpr uint64_t kNone = ~uint64_t(0);
  std::atomic<uint64_t> failedChunk_{kNone};  // the first chunk of the group that has failed
  MlxtsFault fault_ = {};
  uint32_t failingCommand_ = 0;
  std::thread queue_;
};

}  // namespace

std::shared_ptr<Device> openCpuDevice(const CpuOptions& options) {
  try {
    return std::make_shared<CpuDevice>(options);
  } catch (const std::system_error& error) {
    throw Failure("DeviceNotFound", std::string("cannot start its threads: ") + error.what());
  }
}

}  // namespace mlxts
