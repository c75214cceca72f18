#include "dispatch.h"

#include <pthread.h>

#include <algorithm>
#include <cinttypes>
#include <condition_variable>
#include <cstring>
#include <numeric>
#include <thread>

#include "threadgroup_bytes.h"

namespace metal_sim {

namespace {

constexpr size_t kMaxReports = 200;
/** Threadgroups of one dispatch; more would not end in reasonable time. */
constexpr uint64_t kMaxThreadgroups = uint64_t(1) << 26;

std::string text_of(const Place& place) {
  return place.line ? std::string(place.file) + ":" + std::to_string(place.line) : "an unknown line";
}

std::string text_of(const Who& who) {
  char text[96];
  std::snprintf(text, sizeof text, "thread %u of threadgroup (%u, %u, %u)", who.thread, who.threadgroup[0],
                who.threadgroup[1], who.threadgroup[2]);
  return text;
}

metal_sim_who view_of(const Who& who) {
  return {{who.threadgroup[0], who.threadgroup[1], who.threadgroup[2]}, who.thread, who.simdgroup};
}

const char* kind_of(Finding finding) {
  switch (finding) {
    case Finding::kRace:
      return "race";
    case Finding::kOutOfBounds:
      return "out-of-bounds";
    case Finding::kUninitialized:
      return "uninitialized";
    case Finding::kReadOnly:
      return "read-only";
  }
  return "";
}

}  // namespace

Dispatch::Dispatch(const Module& module, const LineTable& lines, const Image& image, const metal_sim_dispatch& request)
    : module_(module), lines_(lines), image_(image), request_(request) {}

bool Dispatch::refuse(const std::string& message) {
  Report report;
  report.kind = "invalid-dispatch";
  const Kernel* kernel = job_.kernel;
  if (kernel) report.file = kernel->file, report.view.place.line = kernel->line;
  report.message = (kernel ? std::string(kernel->name) + ": " : "") + message;
  add(std::move(report), "");
  return false;
}

std::string Dispatch::name_of(uint32_t index) const {
  for (uint32_t i = 0; i < job_.kernel->argument_count; ++i) {
    const Argument& argument = job_.kernel->arguments[i];
    if (argument.kind == ArgumentKind::kBuffer && argument.index == index) return argument.name;
  }
  return "[[buffer(" + std::to_string(index) + ")]]";
}

bool Dispatch::check_request() {
  if (request_.kernel >= module_.kernel_count) return refuse("the kernel does not exist");
  job_.kernel = &module_.kernels[request_.kernel];
  uint64_t threads = 1, threadgroups = 1;
  const bool by_threads = request_.threads[0] != 0;
  for (int axis = 0; axis < 3; ++axis) {
    const uint32_t size = request_.threads_per_threadgroup[axis];
    const uint32_t grid = by_threads ? request_.threads[axis] : request_.threadgroups[axis];
    if (size == 0 || grid == 0) return refuse("every dimension of the grid and of the threadgroup must be at least 1");
    const uint64_t count = by_threads ? (uint64_t(grid) + size - 1) / size : grid;
    if (count * size > UINT32_MAX) return refuse("the grid must have less than 2^32 threads along each axis");
    job_.shape.threads_per_threadgroup[axis] = size;
    job_.shape.threadgroups[axis] = uint32_t(count);
    job_.shape.threads[axis] = by_threads ? grid : uint32_t(count * size);
    threads = std::min<uint64_t>(threads * size, UINT32_MAX);
    threadgroups = std::min<uint64_t>(threadgroups * count, UINT32_MAX);
  }
  const uint32_t limit = job_.kernel->max_threads ? std::min(job_.kernel->max_threads, kMaxThreads) : kMaxThreads;
  if (threads > limit)
    return refuse("a threadgroup must have at most " + std::to_string(limit) + " threads, got " +
                  std::to_string(threads));
  if (threadgroups > kMaxThreadgroups)
    return refuse("the grid must have at most 2^26 threadgroups, got " + std::to_string(threadgroups));
  uint32_t bytes = 0;
  for (uint32_t i = 0; i < request_.threadgroup_memory_count; ++i) {
    const auto& memory = request_.threadgroup_memory[i];
    if (memory.index >= kMaxThreadgroupArguments)
      return refuse("[[threadgroup(" + std::to_string(memory.index) + ")]] does not exist");
    job_.memory.push_back({memory.index, memory.length});
    bytes = std::min(bytes, max_threadgroup_bytes()) + std::min(memory.length, max_threadgroup_bytes() + 1);
  }
  if (bytes > max_threadgroup_bytes())
    return refuse("threadgroup memory must be at most " + std::to_string(max_threadgroup_bytes()) + " bytes");
  for (uint32_t i = 0; i < request_.buffer_count; ++i)
    if (request_.buffers[i].index >= kMaxBuffers || !request_.buffers[i].data || request_.buffers[i].length == 0)
      return refuse("binding " + std::to_string(request_.buffers[i].index) +
                    " must hold memory and have an index below 31");
  for (uint32_t i = 0; i < job_.kernel->argument_count; ++i) {
    const Argument& argument = job_.kernel->arguments[i];
    if (argument.kind == ArgumentKind::kBuffer) {
      const metal_sim_binding* binding = nullptr;
      for (uint32_t k = 0; k < request_.buffer_count; ++k)
        if (request_.buffers[k].index == argument.index) binding = &request_.buffers[k];
      // A buffer that is not bound is a null pointer; only touching it is an error.
      if (!binding) continue;
      if (uintptr_t(binding->data) % std::min(argument.type_align, 16u) != 0)
        return refuse(std::string("`") + argument.name + "` must be aligned to " + std::to_string(argument.type_align) +
                      " bytes, the alignment of " + argument.type);
    } else if (argument.kind == ArgumentKind::kThreadgroup) {
      const auto found = std::find_if(job_.memory.begin(), job_.memory.end(),
                                      [&](const ThreadgroupMemory& memory) { return memory.index == argument.index; });
      if (found == job_.memory.end() || found->bytes == 0)
        return refuse(std::string("`") + argument.name + "` needs a length: [[threadgroup(" +
                      std::to_string(argument.index) + ")]]");
    }
  }
  return true;
}

bool Dispatch::copy_buffers() {
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
  for (uint32_t i = 0; i < request_.buffer_count; ++i) {
    uintptr_t low = uintptr_t(request_.buffers[i].data), high = low + request_.buffers[i].length;
    std::erase_if(ranges, [&](const auto& range) {
      if (range.first >= high || range.second <= low) return false;
      low = std::min(low, range.first), high = std::max(high, range.second);
      return true;
    });
    ranges.emplace_back(low, high);
  }
  for (const auto& [begin, end] : ranges) {
    // The copy keeps the original's place within 16 bytes, and with it the alignment of each binding.
    const size_t lead = begin % 16;
    GuardedBlock copy(end - begin + lead, checker_ ? 64 * 1024 : 0);
    if (!copy) return false;
    std::memcpy(copy.data() + lead, reinterpret_cast<void*>(begin), end - begin);
    blocks_.push_back({begin, end, std::move(copy)});
  }
  return true;
}

bool Dispatch::bind() {
  if (!request_.in_place && !copy_buffers()) return refuse("memory for copies of the buffers is short");
  for (uint32_t i = 0; i < request_.buffer_count; ++i) {
    const auto& binding = request_.buffers[i];
    uintptr_t at = uintptr_t(binding.data);
    for (const Block& block : blocks_)
      if (at >= block.begin && at < block.end) {
        at = uintptr_t(block.copy.data()) + block.begin % 16 + (at - block.begin);
        break;
      }
    job_.arguments.buffer[binding.index] = reinterpret_cast<void*>(at);
    bound_.push_back({binding.index, name_of(binding.index), at, binding.length});
  }
  if (!checker_) return true;
  for (const Bound& bound : bound_) {
    bool read_only = false;
    AddressSpace space = AddressSpace::kDevice;
    for (uint32_t i = 0; i < job_.kernel->argument_count; ++i) {
      const Argument& argument = job_.kernel->arguments[i];
      if (argument.kind == ArgumentKind::kBuffer && argument.index == bound.index)
        read_only = argument.read_only, space = argument.space;
    }
    // Bindings that overlap are one region to a race; the one that may be written decides.
    bool joined = false;
    for (const Bound& other : bound_)
      if (&other < &bound && other.begin < bound.begin + bound.length && bound.begin < other.begin + other.length)
        joined = true;
    if (joined) continue;
    uintptr_t begin = bound.begin, end = bound.begin + bound.length;
    for (const Bound& other : bound_)
      if (&other != &bound && other.begin < end && begin < other.begin + other.length) {
        begin = std::min(begin, other.begin), end = std::max(end, other.begin + uintptr_t(other.length));
        read_only = false;
      }
    if (!checker_->add(begin, end, bound.name, space, read_only)) return refuse("memory for check mode is short");
  }
  return true;
}

/** The order of the threadgroups is part of the schedule. */
void Dispatch::order_threadgroups(uint64_t total) {
  order_.resize(total);
  std::iota(order_.begin(), order_.end(), 0u);
  if (job_.schedule == Schedule::kReverse) std::reverse(order_.begin(), order_.end());
  if (job_.schedule != Schedule::kRandom) return;
  uint64_t state = job_.seed + 0x9e3779b97f4a7c15ull;
  for (uint64_t i = total; i > 1; --i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    std::swap(order_[i - 1], order_[(state >> 33) % i]);
  }
}

void Dispatch::execute() {
  const uint64_t total = uint64_t(job_.shape.threadgroups[0]) * job_.shape.threadgroups[1] * job_.shape.threadgroups[2];
  order_threadgroups(total);
  std::atomic<uint64_t> next{0};
  FaultGuard faults;
  std::mutex ended_mutex;
  std::condition_variable ended;
  uint64_t running = 0;
  const auto work = [&] {
    Worker worker(job_);
    WorkerScope scope(worker);
    if (worker.prepare()) {
      for (uint64_t i; !job_.stop && (i = next++) < total;) worker.run(order_[i]);
    } else {
      std::lock_guard lock(mutex_);
      refuse("memory for the threads' stacks is short");
    }
    std::lock_guard lock(mutex_);
    switches += worker.switches();
    threadgroup_bytes = std::max(threadgroup_bytes, worker.threadgroup_bytes());
  };
  const auto thread = [&] {
    work();
    std::lock_guard lock(ended_mutex);
    --running;
    ended.notify_one();
  };
  const uint64_t workers = checker_ ? 1 : std::clamp<uint64_t>(request_.workers, 1, std::min<uint64_t>(total, 64));
  // The caller's thread may have a small stack or signal settings of its own; workers never run on it.
  std::vector<std::thread> threads;
  running = workers;
  for (uint64_t i = 0; i < workers; ++i) threads.emplace_back(thread);
  {
    std::unique_lock lock(ended_mutex);
    const auto all_ended = [&] { return running == 0; };
    // A loop without barriers is interrupted: again and again, as the signal may meet the engine's own code.
    if (job_.has_deadline && !ended.wait_until(lock, job_.deadline, all_ended))
      while (!ended.wait_for(lock, std::chrono::milliseconds(5), all_ended))
        for (auto& one : threads) pthread_kill(one.native_handle(), kTimeSignal);
    ended.wait(lock, all_ended);
  }
  for (auto& one : threads) one.join();
}

void Dispatch::return_buffers() {
  for (const Block& block : blocks_) {
    const size_t lead = block.begin % 16;
    std::memcpy(reinterpret_cast<void*>(block.begin), block.copy.data() + lead, block.end - block.begin);
    int64_t offset;
    if (checker_ || !block.copy.trampled(&offset)) continue;
    Event event;
    event.kind = "out-of-bounds";
    for (const Bound& bound : bound_)
      if (bound.begin >= uintptr_t(block.copy.data()) &&
          bound.begin < uintptr_t(block.copy.data()) + block.copy.bytes())
        event.argument = bound.name;
    event.message = "a write outside `" + event.argument + "`";
    event.offset = offset - int64_t(lead);
    this->event(event);
  }
}

void Dispatch::run() {
  const auto start = std::chrono::steady_clock::now();
  job_.sink = this;
  job_.schedule = Schedule(std::min(request_.schedule, 2u)), job_.seed = request_.seed;
  job_.has_deadline = request_.timeout_ms != 0;
  job_.deadline = start + std::chrono::milliseconds(request_.timeout_ms);
  job_.image = image_, job_.lines = &lines_;
  if (!check_request()) return;
  if (module_.checked) checker_ = std::make_unique<Checker>(*this, image_);
  job_.checker = checker_.get();
  if (!bind()) return;
  const auto begin = std::chrono::steady_clock::now();
  execute();
  milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return_buffers();
}

Place Dispatch::place_of(uintptr_t pc) const {
  // A return address points behind its call.
  return pc > image_.begin ? lines_.find(pc - image_.begin - 1) : Place{};
}

Who Dispatch::who_of(const Access& access) const {
  Who who;
  uint64_t rest = order_[checker_->threadgroup_of(access)];
  for (int axis = 0; axis < 3; ++axis) {
    who.threadgroup[axis] = uint32_t(rest % job_.shape.threadgroups[axis]);
    rest /= job_.shape.threadgroups[axis];
  }
  who.thread = access.thread, who.simdgroup = access.thread / kSimdgroupSize;
  return who;
}

/** Findings at the same places are one report; `detail` tells apart what else they may differ in. */
void Dispatch::add(Report report, const std::string& detail) {
  auto& view = report.view;
  const std::string key = report.kind + '\0' + report.file + ':' + std::to_string(view.place.line) + '\0' +
                          report.other_file + ':' + std::to_string(view.other_place.line) + '\0' + report.argument +
                          '\0' + detail;
  if (auto found = by_place_.find(key); found != by_place_.end()) {
    ++found->second->view.count;
    return;
  }
  if (reports.size() >= kMaxReports) return;
  view.count = 1;
  reports.push_back(std::move(report));
  by_place_[key] = &reports.back();
}

void Dispatch::event(const Event& event) {
  std::lock_guard lock(mutex_);
  Report report;
  report.kind = event.kind;
  report.argument = event.argument;
  std::string message = event.message;
  report.view.byte_offset = event.offset;
  if (event.kind == "fault" && event.address)
    for (size_t i = 0; i < bound_.size(); ++i)
      for (const Block& block : blocks_)
        if (block.copy.near(event.address) && block.copy.near(bound_[i].begin)) {
          report.kind = "out-of-bounds", report.argument = bound_[i].name;
          report.view.byte_offset = int64_t(event.address) - int64_t(bound_[i].begin);
          message = "an access outside `" + bound_[i].name + "`";
        }
  if (report.kind == "fault" && event.address < 4096)
    message = "an access through a null pointer, a buffer that is not bound, or a misaligned pointer";
  if (report.kind == "out-of-bounds") message += " at byte " + std::to_string(report.view.byte_offset);
  Place place{event.site.file, event.site.line};
  if (event.pc) place = place_of(event.pc + 1);
  report.file = place.file, report.view.place.line = place.line;
  report.view.who = view_of(event.who);
  if (event.other) report.view.other = view_of(*event.other);
  report.other_file = event.other_site.file, report.view.other_place.line = event.other_site.line;
  report.message =
      std::string(job_.kernel->name) + ": " + message + ", at " + text_of(place) + " by " + text_of(event.who);
  add(std::move(report), event.site.operation);
}

void Dispatch::found(Finding kind, const Region& region, int64_t offset, uint32_t bytes, const Access& now,
                     const Access* other) {
  Report report;
  report.kind = kind_of(kind), report.argument = region.name;
  const auto place_at = [&](const Access& access) { return access.pc ? place_of(image_.begin + access.pc) : Place{}; };
  const Place place = place_at(now), other_place = other ? place_at(*other) : Place{};
  report.file = place.file, report.view.place.line = place.line;
  report.other_file = other_place.file, report.view.other_place.line = other_place.line;
  report.view.byte_offset = offset, report.view.bytes = bytes, report.view.is_write = now.writes();
  const Who who = who_of(now);
  report.view.who = view_of(who);
  const auto verb = [](const Access& access) {
    return std::string(access.atomic() ? "atomic " : "") + (access.writes() ? "write" : "read");
  };
  const std::string what =
      std::to_string(bytes) + "-byte " + verb(now) + " of `" + region.name + "` at byte " + std::to_string(offset);
  std::string message;
  switch (kind) {
    case Finding::kRace: {
      const Who earlier = who_of(*other);
      report.view.other = view_of(earlier), report.view.other_is_write = other->writes();
      message = "race: " + what + " at " + text_of(place) + " by " + text_of(who) + ", after " +
                (other->atomic() ? "an " : "a ") + verb(*other) + " at " + text_of(other_place) + " by " +
                text_of(earlier) +
                (checker_->threadgroup_of(*other) == checker_->threadgroup_of(now) ? " with no barrier between" : "");
      break;
    }
    case Finding::kOutOfBounds:
      message = "out of bounds: " + what + ", which has " + std::to_string(region.end - region.begin) + " bytes, at " +
                text_of(place) + " by " + text_of(who);
      break;
    case Finding::kUninitialized:
      message = "uninitialized: " + what + ", which this threadgroup has not written, at " + text_of(place) + " by " +
                text_of(who);
      break;
    case Finding::kReadOnly:
      message = "read-only: " + what + " at " + text_of(place) + " by " + text_of(who);
      break;
  }
  report.message = std::string(job_.kernel->name) + ": " + message;
  std::lock_guard lock(mutex_);
  add(std::move(report), verb(now) + (other ? verb(*other) : ""));
}

}  // namespace metal_sim
