#include "cuda_queue.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "spin.h"

namespace mlxts::cuda {

namespace {

constexpr size_t kAbsentBytes = 256;
constexpr size_t kMostEdges = 4;                      // that begin or end at one dispatch without a node between
constexpr auto kSpin = std::chrono::milliseconds(2);  // most decode steps end within it

Address addressOf(const Memory& memory) { return reinterpret_cast<Address>(memory.data()); }
Address addressOf(const CommandList& list, const Binding& b) { return addressOf(*list.memories[b.memory]) + b.offset; }

// Of threadgroup memory.
uint32_t sharedBytesOf(const Command& c) { return (c.scratchBytes + 15) / 16 * 16; }

// Addresses that have been written.
class Written {
 public:
  void add(Address begin, uint64_t bytes) {
    Address end = begin + bytes;
    auto at = ends_.lower_bound(begin);
    while (at != ends_.end() && at->second <= end) {
      begin = std::min(begin, at->second);
      end = std::max(end, at->first);
      at = ends_.erase(at);
    }
    ends_[end] = begin;
  }
  bool touches(Address begin, uint64_t bytes) const {
    const auto at = ends_.upper_bound(begin);
    return at != ends_.end() && at->second < begin + bytes;
  }

 private:
  std::map<Address, Address> ends_;  // begins of disjoint intervals by their ends
};

}  // namespace

// Pinned memory for the fault records of one submission.
class Queue::Report {
 public:
  Report(std::shared_ptr<Gpu> gpu, uint32_t count) : gpu_(std::move(gpu)), count_(count) {
    void* host = nullptr;
    check(gpu_->driver, gpu_->driver.hostAllocate(&host, count * sizeof(MlxtsFault), 0), "cuMemHostAlloc");
    records_ = static_cast<MlxtsFault*>(host);
  }
  ~Report() {
    const Current current(*gpu_);
    gpu_->driver.hostFree(records_);
  }
  Report(const Report&) = delete;
  uint32_t count() const { return count_; }
  MlxtsFault* records() const { return records_; }

 private:
  const std::shared_ptr<Gpu> gpu_;
  const uint32_t count_;
  MlxtsFault* records_ = nullptr;
};

struct Queue::Flight {
  std::shared_ptr<const CommandList> list;  // keeps the memory that the GPU uses
  std::function<void(Outcome)> done;
  Outcome outcome;
  std::shared_ptr<Memory> faults;  // fault records, zero before
  std::unique_ptr<Report> report;
  Event begin = nullptr, end = nullptr;
  struct Timed {
    uint32_t tag;
    Event begin, end;
  };
  std::vector<Timed> timed;  // when profiled
  bool started = false;      // all of it is in the stream

  void fail(const std::string& cause, const std::string& message) {
    if (!outcome.code.empty()) return;
    outcome.code = "CommandBuffer";
    outcome.cause = cause;
    outcome.message = message;
  }
};

// A list as a graph. Its fault records are its own: their addresses are arguments of its kernels. Each launch leaves
// them zero.
struct Queue::Replay {
  std::shared_ptr<Gpu> gpu;
  GraphExec exec = nullptr;
  std::shared_ptr<Memory> faults;

  explicit Replay(std::shared_ptr<Gpu> gpu) : gpu(std::move(gpu)) {}
  ~Replay() {
    if (!exec) return;
    const Current current(*gpu);
    gpu->driver.graphExecDestroy(exec);
  }
  Replay(const Replay&) = delete;
};

// The arguments of one dispatch: addresses of its buffers, its params, and the fault record.
class Queue::Arguments {
 public:
  Arguments(const CommandList& list, const Command& c, Address absent, Address faults) {
    addresses_.reserve(c.bindings + 1);
    for (uint32_t i = 0; i < c.bindings; ++i) {
      const auto& binding = list.bindings[c.firstBinding + i];
      addresses_.push_back(binding.memory == kAbsent ? absent : addressOf(list, binding));
    }
    addresses_.push_back(c.fault == kNoFault ? absent : faults + c.fault * sizeof(MlxtsFault));
    // A kernel without parameters has a struct of one unused word; the driver may read an address from it.
    params_.assign(list.params.begin() + c.firstParam, list.params.begin() + c.firstParam + c.paramWords);
    params_.resize(std::max<size_t>(params_.size(), 2));
    for (uint32_t i = 0; i < c.bindings; ++i) pointers_.push_back(&addresses_[i]);
    pointers_.push_back(params_.data());
    pointers_.push_back(&addresses_.back());
  }
  Arguments(const Arguments&) = delete;
  void** get() { return pointers_.data(); }

 private:
  std::vector<Address> addresses_;
  std::vector<uint32_t> params_;
  std::vector<void*> pointers_;
};

// Writes a list into a graph. What lies between two barriers depends on all that lies before the first of them.
class Queue::GraphWriter {
 public:
  explicit GraphWriter(const Gpu& gpu) : gpu_(gpu) {
    check(gpu_.driver, gpu_.driver.graphCreate(&graph_, 0), "cuGraphCreate");
  }
  ~GraphWriter() { gpu_.driver.graphDestroy(graph_); }
  GraphWriter(const GraphWriter&) = delete;

  void dispatch(const CommandList& list, const Command& c, const Pipeline& pipeline, Address absent, Address faults) {
    Arguments arguments(list, c, absent, faults);
    KernelNode kernel{};
    kernel.function = pipeline.function;
    std::copy(c.threadgroups, c.threadgroups + 3, kernel.threadgroups);
    std::copy(c.threadsPerThreadgroup, c.threadsPerThreadgroup + 3, kernel.threads);
    kernel.sharedBytes = sharedBytesOf(c);
    kernel.arguments = arguments.get();
    // A kernel that waits by itself is launched while the kernels before it run. What it reads until then, none of these
    // may have written: each kernel of a graph waits before it ends, so those before them have ended or wait, too.
    const bool early = pipeline.waits && beforeAreKernels_ && !before_.empty() && !readsWritten(list, c);
    GraphNode node;
    check(gpu_.driver, gpu_.driver.graphAddKernel(&node, graph_, before_.data(), early ? 0 : before_.size(), &kernel),
          "cuGraphAddKernelNode");
    if (early) {
      const std::vector<GraphNode> to(before_.size(), node);
      const std::vector<GraphEdge> edges(before_.size());
      check(gpu_.driver, gpu_.driver.graphAddEdges(graph_, before_.data(), to.data(), edges.data(), edges.size()),
            "cuGraphAddDependencies");
    }
    now_.push_back(node);
    eachOf(list, c, c.written, [&](Address begin, uint64_t bytes) { written_.add(begin, bytes); });
  }

  void fill(Address to, uint64_t bytes, uint32_t byte) {
    written_.add(to, bytes);
    // A node fills a rectangle whose rows are shorter than 2^32 elements.
    for (uint64_t at = 0; at < bytes;) {
      const uint64_t some = std::min<uint64_t>(bytes - at, 1u << 30);
      const MemsetNode memset{to + at, size_t(some), byte, 1, size_t(some), 1};
      GraphNode node;
      check(gpu_.driver, gpu_.driver.graphAddFill(&node, graph_, before_.data(), before_.size(), &memset, gpu_.context),
            "cuGraphAddMemsetNode");
      now_.push_back(node);
      nowAreKernels_ = false;
      at += some;
    }
  }

  void barrier() {
    if (now_.empty()) return;
    // One node joins many branches, so that n branches before m take n + m edges.
    if (now_.size() > kMostEdges) {
      GraphNode joined;
      check(gpu_.driver, gpu_.driver.graphAddEmpty(&joined, graph_, now_.data(), now_.size()), "cuGraphAddEmptyNode");
      now_ = {joined};
      nowAreKernels_ = false;
    }
    before_ = std::move(now_);
    beforeAreKernels_ = nowAreKernels_;
    now_.clear();
    nowAreKernels_ = true;
  }

  GraphExec instantiate() const {
    GraphExec exec = nullptr;
    check(gpu_.driver, gpu_.driver.graphInstantiate(&exec, graph_, 0), "cuGraphInstantiate");
    return exec;
  }

 private:
  template <typename Do>
  static void eachOf(const CommandList& list, const Command& c, uint32_t slots, Do&& what) {
    for (uint32_t i = 0; i < c.bindings && slots >> i; ++i) {
      const auto& b = list.bindings[c.firstBinding + i];
      if (slots >> i & 1 && b.memory != kAbsent && b.bytes) what(addressOf(list, b), b.bytes);
    }
  }
  bool readsWritten(const CommandList& list, const Command& c) const {
    bool found = false;
    eachOf(list, c, c.early, [&](Address begin, uint64_t bytes) { found = found || written_.touches(begin, bytes); });
    return found;
  }

  const Gpu& gpu_;
  Written written_;
  Graph graph_ = nullptr;
  std::vector<GraphNode> before_, now_;
  bool beforeAreKernels_ = true, nowAreKernels_ = true;
};

Queue::Queue(std::shared_ptr<Gpu> gpu, std::shared_ptr<Heap> heap) : gpu_(std::move(gpu)), heap_(std::move(heap)) {
  absent_ = heap_->allocate(kAbsentBytes, own_);
  if (!absent_) throw Failure("DeviceNotFound", gpu_->name + " has no memory left");
  waiter_ = std::thread([this] { serve(); });
}

Queue::~Queue() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  waiter_.join();
  const Current current(*gpu_);
  gpu_->driver.streamSynchronize(gpu_->compute);
  for (const auto spare : spareEvents_) gpu_->driver.eventDestroy(spare);
}

std::shared_ptr<Memory> Queue::records(uint32_t count) {
  auto records = heap_->allocate(count * sizeof(MlxtsFault), own_);
  if (!records) throw DriverFailure("CommandBuffer", "there is no memory for fault records", kOutOfMemory);
  return records;
}

std::unique_ptr<Queue::Report> Queue::report(uint32_t count) {
  {
    std::lock_guard lock(mutex_);
    const auto fits = std::find_if(spareReports_.begin(), spareReports_.end(),
                                   [&](const auto& one) { return one->count() >= count; });
    if (fits != spareReports_.end()) {
      auto spare = std::move(*fits);
      spareReports_.erase(fits);
      return spare;
    }
  }
  return std::make_unique<Report>(gpu_, count);
}

Event Queue::event() {
  {
    std::lock_guard lock(mutex_);
    if (!spareEvents_.empty()) {
      const Event spare = spareEvents_.back();
      spareEvents_.pop_back();
      return spare;
    }
  }
  Event made = nullptr;
  check(gpu_->driver, gpu_->driver.eventCreate(&made, kEventBlockingSync), "cuEventCreate");
  return made;
}

void Queue::run(const CommandList& list, const Command& c, Address faults, const std::deque<Pipeline>& pipelines) {
  const auto& driver = gpu_->driver;
  if (c.kind == CommandKind::fill) {
    const auto& b = list.bindings[c.firstBinding];
    if (b.bytes)
      check(driver, driver.fill(addressOf(list, b), uint8_t(c.fillByte), b.bytes, gpu_->compute), "cuMemsetD8Async");
    return;
  }
  Arguments arguments(list, c, addressOf(*absent_), faults);
  const auto& g = c.threadgroups;
  const auto& t = c.threadsPerThreadgroup;
  check(driver,
        driver.launch(pipelines[c.pipeline].function, g[0], g[1], g[2], t[0], t[1], t[2], sharedBytesOf(c),
                      gpu_->compute, arguments.get(), nullptr),
        "cuLaunchKernel");
}

std::shared_ptr<Queue::Replay> Queue::replayOf(const CommandList& list, const std::deque<Pipeline>& pipelines) {
  if (list.prepared) return std::static_pointer_cast<Replay>(list.prepared);
  auto replay = std::make_shared<Replay>(gpu_);
  if (list.faults) replay->faults = records(list.faults);
  const Address faults = replay->faults ? addressOf(*replay->faults) : 0;
  GraphWriter graph(*gpu_);
  for (const auto& c : list.commands) {
    if (c.kind == CommandKind::barrier) {
      graph.barrier();
    } else if (c.kind == CommandKind::fill) {
      const auto& b = list.bindings[c.firstBinding];
      graph.fill(addressOf(list, b), b.bytes, uint8_t(c.fillByte));
    } else {
      graph.dispatch(list, c, pipelines[c.pipeline], addressOf(*absent_), faults);
    }
  }
  replay->exec = graph.instantiate();
  list.prepared = replay;
  return replay;
}

void Queue::start(Flight& flight, const std::deque<Pipeline>& pipelines, SubmitOptions options) {
  const auto& driver = gpu_->driver;
  const auto& list = *flight.list;
  const Stream stream = gpu_->compute;
  flight.begin = event();
  flight.end = event();
  std::shared_ptr<Replay> replay;
  if (options.replayed && !options.profile && !list.commands.empty()) replay = replayOf(list, pipelines);
  if (list.faults) {
    flight.faults = replay ? replay->faults : records(list.faults);
    flight.report = report(list.faults);
  }
  heap_->orderBefore(stream);
  check(driver, driver.eventRecord(flight.begin, stream), "cuEventRecord");
  if (replay) {
    check(driver, driver.graphLaunch(replay->exec, stream), "cuGraphLaunch");
  } else {
    const Address faults = flight.faults ? addressOf(*flight.faults) : 0;
    for (const auto& c : list.commands) {
      if (c.kind == CommandKind::barrier) continue;  // a stream keeps the order anyway
      if (options.profile) {
        flight.timed.push_back({c.tag, event(), event()});
        check(driver, driver.eventRecord(flight.timed.back().begin, stream), "cuEventRecord");
      }
      run(list, c, faults, pipelines);
      if (options.profile) check(driver, driver.eventRecord(flight.timed.back().end, stream), "cuEventRecord");
    }
  }
  const size_t bytes = list.faults * sizeof(MlxtsFault);
  if (bytes)
    check(driver, driver.copyOut(flight.report->records(), addressOf(*flight.faults), bytes, stream),
          "cuMemcpyDtoHAsync");
  check(driver, driver.eventRecord(flight.end, stream), "cuEventRecord");
  if (bytes && replay) check(driver, driver.fill(addressOf(*flight.faults), 0, bytes, stream), "cuMemsetD8Async");
  flight.started = true;
}

void Queue::submit(uint64_t id, std::shared_ptr<const CommandList> list, const std::deque<Pipeline>& pipelines,
                   SubmitOptions options, std::function<void(Outcome)> done) {
  const Current current(*gpu_);
  auto flight = std::make_unique<Flight>();
  flight->list = std::move(list);
  flight->done = std::move(done);
  flight->outcome.id = id;
  if (options.profile) flight->outcome.microseconds.assign(flight->list->tags, 0);
  if (lost_) {
    flight->fail("deviceLost", "the device has been lost");
  } else {
    try {
      start(*flight, pipelines, options);
    } catch (const DriverFailure& failure) {
      fail(*flight, failure.result, failure.what());
    }
  }
  {
    std::lock_guard lock(mutex_);
    flights_.push_back(std::move(flight));
  }
  changed_.notify_all();
}

// Only the first of those that a lost device fails is its cause.
void Queue::fail(Flight& flight, Result result, const std::string& message) {
  const bool before = isLost(result) && lost_.exchange(true);
  const bool full = result == kOutOfMemory;
  flight.fail(before ? "deviceLost" : causeOf(result), full ? message + "; " + gpu_->freeText() : message);
}

void Queue::takeFaults(Flight& flight) {
  if (!flight.report || !flight.outcome.code.empty()) return;
  for (const auto& c : flight.list->commands) {
    if (c.fault == kNoFault || flight.report->records()[c.fault].code == 0) continue;
    flight.outcome.code = "InvalidArgument";
    flight.outcome.cause = "invalidResource";
    flight.outcome.tag = c.tag;
    flight.outcome.fault = flight.report->records()[c.fault];
    return;
  }
}

// Waits for a submission, and fills its outcome.
void Queue::end(Flight& flight) {
  const auto& driver = gpu_->driver;
  Result result;
  if (flight.started) {
    spinUntil([&] { return driver.eventQuery(flight.end) != kNotReady; }, kSpin);
    result = driver.eventSynchronize(flight.end);
  } else {
    result = driver.streamSynchronize(gpu_->compute);  // a part of it may run
  }
  if (result != kSuccess) fail(flight, result, driver.describe(result));
  takeFaults(flight);
  const auto elapsed = [&](Event begin, Event end) {
    float milliseconds = 0;
    return driver.eventElapsed(&milliseconds, begin, end) == kSuccess ? double(milliseconds) : 0;
  };
  if (flight.started && result == kSuccess) {
    flight.outcome.milliseconds = elapsed(flight.begin, flight.end);
    for (const auto& one : flight.timed) flight.outcome.microseconds[one.tag] += elapsed(one.begin, one.end) * 1000;
  }
  std::lock_guard lock(mutex_);
  for (const Event one : {flight.begin, flight.end})
    if (one) spareEvents_.push_back(one);
  for (const auto& one : flight.timed) spareEvents_.insert(spareEvents_.end(), {one.begin, one.end});
  if (flight.report) spareReports_.push_back(std::move(flight.report));
}

void Queue::serve() {
  const Current current(*gpu_);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !flights_.empty(); });
    if (flights_.empty()) return;
    auto& flight = *flights_.front();
    lock.unlock();
    end(flight);
    // They are cleared after the end that was waited for: that has been done when the next submission has ended.
    clearing_ = std::move(flight.faults);
    flight.list.reset();  // memory of disposed buffers goes before anybody hears of the end
    flight.done(std::move(flight.outcome));
    lock.lock();
    flights_.pop_front();
    if (flights_.empty()) idle_.notify_all();
  }
}

void Queue::drain() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return flights_.empty(); });
}

}  // namespace mlxts::cuda
