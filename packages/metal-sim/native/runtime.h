// Runs one threadgroup's threads as fibers on the calling OS thread.
#pragma once
#include <signal.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "check.h"
#include "fiber.h"
#include "guarded_memory.h"
#include "line_table.h"
#include "module.h"

namespace metal_sim {

enum class Schedule : uint32_t { kForward, kReverse, kRandom };

/** Sent to the OS threads of a dispatch whose time is over. By default, as where no dispatch runs, it does nothing. */
constexpr int kTimeSignal = SIGURG;

/** A thread's position, for reports. */
struct Who {
  uint32_t threadgroup[3] = {};
  uint32_t thread = 0;
  uint32_t simdgroup = 0;
};
Who who_is(const Thread& thread);

/** True if both are the same operation at the same place. */
inline bool same(const Site& a, const Site& b) {
  const auto equal = [](const char* x, const char* y) { return x == y || std::strcmp(x, y) == 0; };
  return &a == &b || (a.line == b.line && equal(a.operation, b.operation) && equal(a.file, b.file));
}

/** What a threadgroup found; `pc` is absolute, 0 if `site` says where. */
struct Event {
  std::string kind;
  std::string message;
  Site site{"", 0, ""};
  uintptr_t pc = 0;
  Who who;
  /** Of a fault. */
  uintptr_t address = 0;
  std::string argument;
  int64_t offset = 0;
  Site other_site{"", 0, ""};
  std::optional<Who> other;
};

class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void event(const Event& event) = 0;
};

struct DispatchShape {
  uint32_t threadgroups[3];
  uint32_t threads_per_threadgroup[3];
  /** Of the whole grid; the last threadgroups may be smaller. */
  uint32_t threads[3];
};

struct ThreadgroupMemory {
  uint32_t index;
  uint32_t bytes;
};

/** Everything that the threadgroups of a dispatch share. */
struct Job {
  const Kernel* kernel;
  DispatchShape shape;
  Arguments arguments;
  std::vector<ThreadgroupMemory> memory;
  Schedule schedule;
  uint64_t seed;
  std::chrono::steady_clock::time_point deadline;
  bool has_deadline;
  /** Where the module lies, and its lines. */
  Image image;
  const LineTable* lines;
  /** Only of a checked module; then one worker runs. */
  Checker* checker;
  EventSink* sink;
  /** Set by the first fatal event. */
  std::atomic<bool> stop{false};
};

class Worker {
 public:
  explicit Worker(Job& job);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  /** False when memory is short. */
  bool prepare();
  void run(uint64_t threadgroup);
  uint64_t switches() const { return switches_; }
  uint32_t threadgroup_bytes() const { return most_bytes_; }

  /** In a signal handler: the running thread faulted, or its time is over. Returns true if `landing` may be jumped to.
   */
  bool fault(int signal, uintptr_t address, uintptr_t pc);
  /** Top of a stack for the jump out of a faulting thread. */
  uintptr_t landing_top() const;
  /** Where that jump goes: reports the fault and leaves the threadgroup. */
  [[noreturn]] void land();
  const Thread* running() const { return running_ ? &running_->thread : nullptr; }

 private:
  enum class State : uint8_t { kRunning, kAtBarrier, kAtSimdgroup, kDone };
  struct Fiber {
    Thread thread;
    Context context;
    State state;
    /** What it waits for: on its own stack, so as long as it waits. */
    const Site* site;
  };
  /** Bits of lanes, and the operation that `waiting` ones have reached. */
  struct Simdgroup {
    uint32_t ready, live, waiting;
    uint32_t phase, flags;
    void (*last)(Exchange&, uint32_t);
    const Site* site;
  };
  struct Variable {
    const void* key;
    const char* name;
    GuardedBlock block;
    /** Used by the threadgroup that runs. */
    bool used;
  };

  static const Host kHost;
  static void body();
  void start(Fiber& fiber, uint64_t threadgroup, uint32_t index);
  void go(Fiber* from, Fiber* to);
  Fiber* pick();
  uint64_t random();
  void wait(Fiber& fiber);
  void release_threadgroup(uint32_t flags);
  void release_simdgroup(uint32_t simdgroup, uint32_t phase);
  void finish(Fiber& fiber);
  void report(std::string kind, std::string message, const Site& site);
  void report_stuck();
  void report_index(int64_t index, const Site& site);
  void report_meeting(const Fiber& fiber, const Site& site);
  void report_fault();
  void report_time(const Site& site, uintptr_t pc);
  /** Ends the threadgroup from within a thread, whose stack is forgotten: nothing on it may own memory. */
  [[noreturn]] void abandon();
  /** `pc`: where the kernel calls from, for a thread that waits nowhere. */
  void check_time(uintptr_t pc);
  void check_trampled();
  void barrier(uint32_t flags, const Site& site);
  void rendezvous(uint32_t flags, const Site& site, void (*last)(Exchange&, uint32_t), uint32_t phase);
  void* variable(const void* key, uint32_t bytes, uint32_t align, const Site& site);
  void undefined(Undefined kind, const Site& site, uint64_t value);
  void breathe(uintptr_t pc);

  Job& job_;
  std::unique_ptr<Stacks> stacks_;
  /** In the block of the stacks, as are those after it. */
  const Host* host_ = nullptr;
  Arguments* arguments_ = nullptr;
  std::span<Fiber> fibers_;
  std::span<Exchange> exchanges_;
  std::vector<GuardedBlock> blocks_;
  /** A stack, for what follows a fault. */
  std::unique_ptr<std::byte[]> landing_;
  Context main_;
  Fiber* running_ = nullptr;
  uint32_t count_ = 0, simdgroups_ = 0, alive_ = 0;
  std::array<Simdgroup, kMaxThreads / kSimdgroupSize> groups_{};
  uint32_t at_barrier_ = 0;
  const Site* barrier_site_ = nullptr;
  uint32_t barrier_flags_ = 0;
  uint32_t cursor_ = 0;
  uint64_t random_state_ = 0;
  std::vector<Variable> variables_;
  uint32_t argument_bytes_ = 0, variable_bytes_ = 0, most_bytes_ = 0;
  uint64_t switches_ = 0;
  uint32_t breaths_ = 0;
  struct {
    int signal = 0;
    uintptr_t address = 0, pc = 0;
  } fault_;
};

/** Takes over the signals of faulting threads while it lives. */
class FaultGuard {
 public:
  FaultGuard();
  ~FaultGuard();
};

/** Gives the calling OS thread a signal stack and names its worker. */
class WorkerScope {
 public:
  explicit WorkerScope(Worker& worker);
  ~WorkerScope();

 private:
  std::vector<std::byte> stack_;
  stack_t before_{};
};

/** The worker that this OS thread runs, or nullptr. */
#if defined(__linux__)
extern constinit thread_local Worker* worker_of_thread __attribute__((tls_model("initial-exec")));
#else
extern constinit thread_local Worker* worker_of_thread;
#endif
inline Worker* current_worker() { return worker_of_thread; }

}  // namespace metal_sim
