#include "runtime.h"

#include <bit>
#include <cstring>

#include "threadgroup_bytes.h"

namespace metal_sim {

const Host Worker::kHost = {
    [](uint32_t flags, const Site& site) { current_worker()->barrier(flags, site); },
    [](uint32_t flags, const Site& site, void (*last)(Exchange&, uint32_t), uint32_t phase) {
      current_worker()->rendezvous(flags, site, last, phase);
    },
    [](const void* key, uint32_t bytes, uint32_t align, const Site& site) {
      return current_worker()->variable(key, bytes, align, site);
    },
    [](const Thread& thread, const volatile void* address, uint32_t bytes, uint32_t flags, const void* pc) {
      // Without a place of its own, the access is where this is called from.
      static_cast<Checker*>(thread.checker)
          ->access(thread, uintptr_t(address), bytes, flags, uintptr_t(pc ? pc : __builtin_return_address(0)));
    },
    [](Undefined kind, const Site& site, uint64_t value) { current_worker()->undefined(kind, site, value); },
    [] { current_worker()->breathe(uintptr_t(__builtin_return_address(0))); },
};

constexpr size_t kLandingBytes = 64 * 1024;

Worker::Worker(Job& job) : job_(job), landing_(std::make_unique_for_overwrite<std::byte[]>(kLandingBytes)) {}

Worker::~Worker() { Stacks::give_back(std::move(stacks_)); }

bool Worker::prepare() {
  const uint32_t* size = job_.shape.threads_per_threadgroup;
  const uint32_t threads = size[0] * size[1] * size[2], simdgroups = (threads + kSimdgroupSize - 1) / kSimdgroupSize;
  stacks_ = Stacks::take(threads);
  if (!stacks_) return false;
  // What the shim reads and writes lies where no access is the kernel's.
  constexpr auto aligned = [](size_t bytes) { return (bytes + 63) / 64 * 64; };
  constexpr size_t kArgumentsAt = aligned(sizeof(Host)), kFibersAt = kArgumentsAt + aligned(sizeof(Arguments)),
                   kExchangesAt = kFibersAt + aligned(kMaxThreads * sizeof(Fiber));
  static_assert(kExchangesAt + kMaxThreads / kSimdgroupSize * sizeof(Exchange) <= Stacks::kSharedBytes);
  std::byte* const shared = stacks_->shared();
  host_ = new (shared) Host(kHost);
  arguments_ = new (shared + kArgumentsAt) Arguments(job_.arguments);
  fibers_ = {new (shared + kFibersAt) Fiber[threads]{}, threads};
  exchanges_ = {new (shared + kExchangesAt) Exchange[simdgroups]{}, simdgroups};
  for (uint32_t i = 0; i < threads; ++i) stacks_->set_thread(i, &fibers_[i].thread);
  // In check mode an access is reported before it happens, and the kernel goes on; it may reach past the end.
  const size_t margin = job_.checker ? 64 * 1024 : 0;
  for (const auto& memory : job_.memory) {
    GuardedBlock block(memory.bytes, margin);
    if (!block) return false;
    arguments_->threadgroup[memory.index] = block.data();
    if (job_.checker) {
      const uintptr_t begin = uintptr_t(block.data());
      std::string name = "[[threadgroup(" + std::to_string(memory.index) + ")]]";
      for (uint32_t i = 0; i < job_.kernel->argument_count; ++i) {
        const Argument& argument = job_.kernel->arguments[i];
        if (argument.kind == ArgumentKind::kThreadgroup && argument.index == memory.index) name = argument.name;
      }
      if (!job_.checker->add(begin, begin + memory.bytes, name, AddressSpace::kThreadgroup, false)) return false;
    }
    argument_bytes_ += (memory.bytes + 15) / 16 * 16;
    blocks_.push_back(std::move(block));
  }
  random_state_ = job_.seed * 0x9e3779b97f4a7c15ull + 1;
  return true;
}

uint64_t Worker::random() {
  random_state_ ^= random_state_ << 13;
  random_state_ ^= random_state_ >> 7;
  random_state_ ^= random_state_ << 17;
  return random_state_ * 0x2545f4914f6cdd1dull >> 11;
}

inline void Worker::go(Fiber* from, Fiber* to) {
  ++switches_;
  running_ = to;
  switch_context(from ? from->context : main_, to ? to->context : main_);
}

/** The next thread that can run, or nullptr. */
Worker::Fiber* Worker::pick() {
  const uint32_t n = simdgroups_;
  switch (job_.schedule) {
    case Schedule::kForward:
      for (uint32_t k = 0; k < n; ++k, cursor_ = cursor_ + 1 < n ? cursor_ + 1 : 0)
        if (const uint32_t ready = groups_[cursor_].ready)
          return &fibers_[cursor_ * kSimdgroupSize + uint32_t(std::countr_zero(ready))];
      return nullptr;
    case Schedule::kReverse:
      for (uint32_t k = 0; k < n; ++k, cursor_ = cursor_ ? cursor_ - 1 : n - 1)
        if (const uint32_t ready = groups_[cursor_].ready)
          return &fibers_[cursor_ * kSimdgroupSize + 31 - uint32_t(std::countl_zero(ready))];
      return nullptr;
    case Schedule::kRandom: {
      // The first that is ready from a random simdgroup and a random lane on.
      const uint64_t bits = random();
      uint32_t index = uint32_t((bits >> 5 & 0xffffffff) * n >> 32);
      for (uint32_t k = 0; k < n; ++k, index = index + 1 < n ? index + 1 : 0)
        if (const uint32_t ready = groups_[index].ready) {
          const uint32_t from = bits & 31;
          const uint32_t lane = (from + uint32_t(std::countr_zero(std::rotr(ready, int(from))))) & 31;
          return &fibers_[index * kSimdgroupSize + lane];
        }
      return nullptr;
    }
  }
  return nullptr;
}

void Worker::abandon() {
  job_.stop = true;
  Context gone;
  running_ = nullptr;
  switch_context(gone, main_);
  __builtin_unreachable();
}

void Worker::check_time(uintptr_t pc) {
  if (!job_.has_deadline || std::chrono::steady_clock::now() < job_.deadline) return;
  report_time(running_ && running_->site ? *running_->site : Site{"", 0, ""}, pc);
  abandon();
}

/** The running thread has given up its turn. */
inline void Worker::wait(Fiber& fiber) {
  Fiber* next = pick();
  if (!next) {
    report_stuck();
    abandon();
  }
  if (next != &fiber) go(&fiber, next);
  fiber.state = State::kRunning, fiber.site = nullptr;
}

void Worker::release_threadgroup(uint32_t flags) {
  for (uint32_t group = 0; group < simdgroups_; ++group) groups_[group].ready = groups_[group].live;
  at_barrier_ = 0;
  if (job_.schedule == Schedule::kForward) cursor_ = 0;
  if (job_.schedule == Schedule::kReverse) cursor_ = simdgroups_ - 1;
  if (job_.checker) job_.checker->threadgroup_barrier(flags);
}

void Worker::barrier(uint32_t flags, const Site& site) {
  Fiber& fiber = *running_;
  groups_[fiber.thread.simdgroup_index_in_threadgroup].ready &= ~(1u << fiber.thread.thread_index_in_simdgroup);
  fiber.state = State::kAtBarrier, fiber.site = &site;
  if (at_barrier_ == 0) {
    barrier_site_ = &site, barrier_flags_ = flags;
  } else if (!same(*barrier_site_, site)) {
    report_meeting(fiber, site);
    abandon();
  }
  barrier_flags_ &= flags;
  if (++at_barrier_ == count_) {
    check_time(0);
    release_threadgroup(barrier_flags_);
  }
  wait(fiber);
}

void Worker::release_simdgroup(uint32_t index, uint32_t phase) {
  Exchange& exchange = exchanges_[index];
  Simdgroup& group = groups_[index];
  if (phase < 2) exchange.active[phase] = group.waiting;
  if (group.last) group.last(exchange, phase);
  if (job_.checker) job_.checker->simdgroup_barrier(index, group.flags);
  group.ready |= group.waiting;
  group.waiting = 0;
}

void Worker::rendezvous(uint32_t flags, const Site& site, void (*last)(Exchange&, uint32_t), uint32_t phase) {
  Fiber& fiber = *running_;
  const uint32_t index = fiber.thread.simdgroup_index_in_threadgroup,
                 bit = 1u << fiber.thread.thread_index_in_simdgroup;
  Simdgroup& group = groups_[index];
  if (group.waiting == 0) {
    group.site = &site, group.last = last, group.phase = phase, group.flags = flags;
  } else if (!same(*group.site, site)) {
    fiber.state = State::kAtSimdgroup, fiber.site = &site;
    report_stuck();
    abandon();
  }
  group.flags &= flags;
  group.waiting |= bit, group.ready &= ~bit;
  if (group.waiting == group.live) {
    release_simdgroup(index, phase);
    if (job_.schedule != Schedule::kRandom) return;
  }
  fiber.state = State::kAtSimdgroup, fiber.site = &site;
  wait(fiber);
}

void* Worker::variable(const void* key, uint32_t bytes, uint32_t align, const Site& site) {
  Variable* found = nullptr;
  for (auto& variable : variables_)
    if (variable.key == key) found = &variable;
  if (!found) {
    GuardedBlock block(bytes, job_.checker ? 64 * 1024 : 0);
    const uintptr_t begin = uintptr_t(block.data());
    if (!block ||
        (job_.checker && !job_.checker->add(begin, begin + bytes, site.operation, AddressSpace::kThreadgroup, false))) {
      report("out-of-memory", "memory for threadgroup variable `" + std::string(site.operation) + "` is short", site);
      abandon();
    }
    variables_.push_back({key, site.operation, std::move(block), false});
    found = &variables_.back();
  }
  if (!found->used) {
    found->used = true;
    found->block.poison();
    variable_bytes_ = (variable_bytes_ + align - 1) / align * align + bytes;
    if (argument_bytes_ + variable_bytes_ > max_threadgroup_bytes()) {
      report("threadgroup-memory",
             "a threadgroup must use at most " + std::to_string(max_threadgroup_bytes()) +
                 " bytes of threadgroup memory, " + "with `" + site.operation + "` it uses " +
                 std::to_string(argument_bytes_ + variable_bytes_),
             site);
      abandon();
    }
  }
  return found->block.data();
}

void Worker::breathe(uintptr_t pc) {
  if ((++breaths_ & 255) == 0) check_time(pc);
  if (job_.schedule != Schedule::kRandom || (random() & 3) != 0) return;
  Fiber* self = running_;
  Fiber* next = pick();
  if (next && next != self) go(self, next);
}

void Worker::body() {
  Worker& self = *current_worker();
  Fiber& fiber = *self.running_;
  self.job_.kernel->entry(*self.arguments_, fiber.thread);
  self.finish(fiber);
  __builtin_unreachable();
}

void Worker::finish(Fiber& fiber) {
  const uint32_t index = fiber.thread.simdgroup_index_in_threadgroup,
                 bit = 1u << fiber.thread.thread_index_in_simdgroup;
  Simdgroup& group = groups_[index];
  fiber.state = State::kDone;
  group.live &= ~bit, group.ready &= ~bit;
  --alive_;
  // The lanes that are left take part alone.
  if (group.waiting && group.waiting == group.live) release_simdgroup(index, group.phase);
  Fiber* next = pick();
  if (!next && alive_) {
    report_stuck();
    abandon();
  }
  go(&fiber, next);
}

void Worker::start(Fiber& fiber, uint64_t threadgroup, uint32_t index) {
  const DispatchShape& shape = job_.shape;
  Thread& thread = fiber.thread;
  const uint32_t counts[3] = {shape.threadgroups[0], shape.threadgroups[1], shape.threadgroups[2]};
  uint64_t rest = threadgroup;
  uint32_t within = index;
  for (int axis = 0; axis < 3; ++axis) {
    const uint32_t position = uint32_t(rest % counts[axis]), full = shape.threads_per_threadgroup[axis];
    rest /= counts[axis];
    const uint32_t size = std::min(full, shape.threads[axis] - position * full);
    thread.threadgroup_position_in_grid[axis] = position;
    thread.threads_per_threadgroup[axis] = size;
    thread.dispatch_threads_per_threadgroup[axis] = full;
    thread.threadgroups_per_grid[axis] = counts[axis];
    thread.threads_per_grid[axis] = shape.threads[axis];
    thread.thread_position_in_threadgroup[axis] = within % size;
    within /= size;
    thread.thread_position_in_grid[axis] = position * full + thread.thread_position_in_threadgroup[axis];
  }
  thread.thread_index_in_threadgroup = index;
  thread.thread_index_in_simdgroup = index % kSimdgroupSize;
  thread.simdgroup_index_in_threadgroup = index / kSimdgroupSize;
  thread.simdgroups_per_threadgroup = simdgroups_;
  thread.phase = 0;
  thread.exchange = &exchanges_[index / kSimdgroupSize];
  thread.checker = job_.checker;
  thread.host = host_;
  thread.arguments = arguments_;
  thread.copy_groups = thread.copy_count = 0;
  thread.product_groups = thread.product_count = thread.unfenced = thread.meetings = 0;
  fiber.state = State::kRunning;
  fiber.site = nullptr;
  start_context(fiber.context, stacks_->bottom(index), stacks_->top(index), body);
}

void Worker::run(uint64_t threadgroup) {
  exchanges_[0].unfenced = 0;
  start(fibers_[0], threadgroup, 0);
  const uint32_t* size = fibers_[0].thread.threads_per_threadgroup;
  count_ = alive_ = size[0] * size[1] * size[2];
  simdgroups_ = (count_ + kSimdgroupSize - 1) / kSimdgroupSize;
  for (uint32_t i = 0; i < count_; ++i) start(fibers_[i], threadgroup, i);
  for (uint32_t index = 0; index < simdgroups_; ++index) {
    const uint32_t lanes = std::min(kSimdgroupSize, count_ - index * kSimdgroupSize);
    const uint32_t all = lanes == 32 ? ~0u : (1u << lanes) - 1;
    groups_[index] = {all, all, 0, 0, 0, nullptr, nullptr};
    exchanges_[index].warpgroup_steps = 0;
  }
  at_barrier_ = 0;
  cursor_ = job_.schedule == Schedule::kReverse ? simdgroups_ - 1 : 0;
  variable_bytes_ = 0;
  for (auto& variable : variables_) variable.used = false;
  for (auto& block : blocks_) block.poison();
  if (job_.checker) job_.checker->begin_threadgroup(simdgroups_);
  go(nullptr, pick());
  running_ = nullptr;
  most_bytes_ = std::max(most_bytes_, argument_bytes_ + variable_bytes_);
  if (!job_.checker) check_trampled();
}

bool Worker::fault(int signal, uintptr_t address, uintptr_t pc) {
  if (!running_) return false;
  // A thread can be left in the middle of a kernel's line, never in the middle of the engine's or the C library's code.
  if (signal == kTimeSignal &&
      (pc < job_.image.begin || pc >= job_.image.end || job_.lines->find(pc - job_.image.begin).line == 0))
    return false;
  fault_.signal = signal, fault_.address = address, fault_.pc = pc;
  return true;
}

uintptr_t Worker::landing_top() const { return (uintptr_t(landing_.get() + kLandingBytes) & ~uintptr_t(63)) - 64; }

}  // namespace metal_sim
