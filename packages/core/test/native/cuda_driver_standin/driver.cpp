// The functions of the driver.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <regex>
#include <sstream>

#include "standin.h"

namespace mlxts::cuda {
ContextOf primary;
}  // namespace mlxts::cuda

namespace standin {

namespace {

constexpr Result kInvalidHandle = 400, kInvalidContext = 201;

// Everything that a program has made and not given back.
template <typename T>
class Made {
 public:
  template <typename... Arguments>
  T* make(Arguments&&... arguments) {
    auto made = std::make_shared<T>(std::forward<Arguments>(arguments)...);
    std::lock_guard lock(mutex_);
    return (all_[made.get()] = made).get();
  }
  std::shared_ptr<T> find(T* handle) const {
    std::lock_guard lock(mutex_);
    const auto found = all_.find(handle);
    return found == all_.end() ? nullptr : found->second;
  }
  std::shared_ptr<T> remove(T* handle) {
    std::lock_guard lock(mutex_);
    const auto found = all_.find(handle);
    if (found == all_.end()) return nullptr;
    auto one = std::move(found->second);
    all_.erase(found);
    return one;
  }
  std::vector<std::shared_ptr<T>> all() const {
    std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<T>> all;
    for (const auto& [handle, one] : all_) all.push_back(one);
    return all;
  }
  size_t clear() {
    std::map<T*, std::shared_ptr<T>> all;
    {
      std::lock_guard lock(mutex_);
      all.swap(all_);
    }
    return all.size();
  }

 private:
  mutable std::mutex mutex_;
  std::map<T*, std::shared_ptr<T>> all_;
};

struct Pinned {
  void* begin;
  size_t bytes;
  std::atomic<int> copies{0};  // that have not ended
  explicit Pinned(size_t bytes) : begin(std::malloc(bytes)), bytes(bytes) { std::memset(begin, 0x5a, bytes); }
  ~Pinned() { std::free(begin); }
};

// A copy that has not ended.
struct Copy {
  std::shared_ptr<Pinned> pinned;
  explicit Copy(std::shared_ptr<Pinned> of) : pinned(std::move(of)) { ++pinned->copies; }
  ~Copy() { --pinned->copies; }
};

struct State {
  std::mutex life;  // of the context
  std::mutex mutex;
  Settings settings;
  std::string report;
  std::map<std::string, int> calls;
  std::atomic<int> retained{0};
  int contexts = 0;
  PoolOf pool;
  Made<StreamOf> streams;
  Made<EventOf> events;
  Made<ModuleOf> modules;
  Made<GraphOf> graphs;
  Made<GraphExecOf> execs;
  Made<Pinned> pinned;
  std::condition_variable reached;  // a moment of an event
  std::mutex moments;
};
State& state() {
  static auto* state = new State();
  return *state;
}

thread_local std::vector<Context> currents;

double now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Why a call that needs a context fails before it begins.
Result refused(const char* function) {
  if (const Result result = injected(function); result != kSuccess) {
    if (result >= 700 && result != kOutOfResources) primary.lost = result;
    return result;
  }
  if (currents.empty()) {
    fault(std::string(function) + " without a context");
    return kInvalidContext;
  }
  return primary.lost;
}

template <typename T>
std::shared_ptr<T> known(const Made<T>& made, T* handle, const char* function) {
  auto found = made.find(handle);
  if (!found) fault(std::string(function) + " with a handle that is gone");
  return found;
}

// Pinned memory in which `bytes` bytes at `begin` lie.
std::shared_ptr<Pinned> pinnedAt(const void* begin, size_t bytes, const char* function) {
  const auto* first = static_cast<const char*>(begin);
  for (const auto& one : state().pinned.all()) {
    const auto* own = static_cast<const char*>(one->begin);
    if (first >= own && bytes <= one->bytes && size_t(first - own) <= one->bytes - bytes) return one;
  }
  fault(std::string(function) + " of memory that is not pinned");
  return nullptr;
}

void fill(const Reached& to, size_t bytes, uint8_t byte) {
  constexpr size_t kPage = 4096, kLarge = 64 << 20;
  if (byte != 0 || bytes < kLarge) {
    std::memset(to.bytes, byte, bytes);
    return;
  }
  // Whole pages are given back to the system, which shows zeros in their place.
  const size_t head = (kPage - reinterpret_cast<uintptr_t>(to.bytes) % kPage) % kPage;
  const size_t pages = (bytes - head) / kPage * kPage;
  std::memset(to.bytes, 0, head);
  madvise(to.bytes + head, pages, MADV_DONTNEED);
  std::memset(to.bytes + head + pages, 0, bytes - head - pages);
}

// What a launch does later; the driver takes the arguments' values now.
std::function<void(Random&)> launching(const std::shared_ptr<ModuleOf>& module, const FunctionOf& function,
                                       const unsigned* groups, const unsigned* threads, unsigned sharedBytes,
                                       void** arguments) {
  const auto* kernel = function.kernel;
  Call call{};
  std::copy(groups, groups + 3, call.threadgroups);
  std::copy(threads, threads + 3, call.threads);
  call.sharedBytes = sharedBytes;
  if (!kernel->run) return [](Random&) {};
  for (unsigned i = 0; i < kernel->buffers; ++i) call.buffers.push_back(*static_cast<Address*>(arguments[i]));
  const auto* params = static_cast<const uint8_t*>(arguments[kernel->buffers]);
  call.params.assign(params, params + kernel->paramBytes);
  call.faultRecord = *static_cast<Address*>(arguments[kernel->buffers + 1]);
  return [module, kernel, call](Random& random) {
    if (!module->loaded) fault(std::string(kernel->symbol) + " runs after its module was unloaded");
    if (const Result result = injected("kernel"); result != kSuccess) throw Stopped{result};
    kernel->run(call, random);
  };
}

std::shared_ptr<ModuleOf> moduleOf(const FunctionOf* function) {
  for (const auto& module : state().modules.all())
    if (module.get() == function->module) return module;
  return nullptr;
}

bool fits(const FunctionOf& function, const unsigned* groups, const unsigned* threads, unsigned sharedBytes) {
  const uint64_t most[3] = {0x7fffffff, 65535, 65535};
  for (int axis = 0; axis < 3; ++axis)
    if (groups[axis] == 0 || groups[axis] > most[axis] || threads[axis] == 0) return false;
  return uint64_t(threads[0]) * threads[1] * threads[2] <= uint64_t(settings().threads) && threads[2] <= 64 &&
         sharedBytes <= function.mostSharedBytes;
}

Result addNode(const char* name, GraphNode* node, Graph graph, const GraphNode* after, size_t count,
               std::function<void(Random&)> run) {
  const auto found = known(state().graphs, graph, name);
  if (!found) return kInvalidHandle;
  Node made{std::move(run), {}};
  for (size_t i = 0; i < count; ++i) made.after.push_back(after[i]->index);
  found->nodes.push_back(std::move(made));
  found->handles.push_back(std::make_unique<GraphNodeOf>(GraphNodeOf{found->nodes.size() - 1}));
  *node = found->handles.back().get();
  return kSuccess;
}

uint64_t numberAfter(const std::string& word, const char* prefix) {
  return std::strtoull(word.c_str() + std::strlen(prefix), nullptr, 10);
}

}  // namespace

const Settings& settings() { return state().settings; }

void readSettings() {
  auto& s = state();
  Settings made;
  const char* text = std::getenv("MLXTS_CUDA_STANDIN");
  std::istringstream words(text ? text : "");
  for (std::string word; std::getline(words, word, ',');) {
    const auto starts = [&](const char* prefix) { return word.rfind(prefix, 0) == 0; };
    std::smatch match;
    if (starts("seed:")) made.seed = numberAfter(word, "seed:");
    if (starts("delay:")) made.delay = unsigned(numberAfter(word, "delay:"));
    if (starts("memory:")) made.bytes = numberAfter(word, "memory:");
    if (starts("capability:")) made.capability = int(numberAfter(word, "capability:"));
    if (starts("threads:")) made.threads = int(numberAfter(word, "threads:"));
    if (word == "no-device") made.device = false;
    if (word == "no-pools") made.pools = false;
    if (word == "idle-kernels") made.idleKernels = true;
    if (std::regex_match(word, match, std::regex("(\\w+)@(\\d+)=(\\d+)")))
      made.failing.push_back({match[1], std::stoi(match[2]), std::stoi(match[3])});
  }
  const char* report = std::getenv("MLXTS_CUDA_STANDIN_REPORT");
  std::lock_guard lock(s.mutex);
  s.report = report ? report : "";
  // Streams of another device read the settings meanwhile.
  if (s.retained == 0) s.settings = made;
  s.settings.failing = made.failing;
  s.calls.clear();
}

Result injected(const char* function) {
  auto& s = state();
  std::lock_guard lock(s.mutex);
  if (s.settings.failing.empty()) return kSuccess;
  const int call = ++s.calls[function];
  for (const auto& one : s.settings.failing)
    if (one.call == call && one.function == function) return one.result;
  return kSuccess;
}

void note(const std::string& line) {
  auto& s = state();
  std::lock_guard lock(s.mutex);
  if (s.report.empty()) return;
  const int file = open(s.report.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  const std::string whole = line + "\n";
  if (file < 0 || write(file, whole.data(), whole.size()) < 0) std::perror("cuda stand-in");
  if (file >= 0) close(file);
}

void fault(const std::string& what) { note("fault: " + what); }

}  // namespace standin

using namespace standin;
using namespace mlxts::cuda;

#define MLXTS_EXPORT(name, symbol, parameters) \
  extern "C" __attribute__((visibility("default"))) Result symbol parameters;
MLXTS_CUDA_FUNCTIONS(MLXTS_EXPORT)

#define MLXTS_ENTER(function) \
  if (const Result failed = refused(#function); failed != kSuccess) return failed
#define MLXTS_KNOWN(name, made, handle, function)           \
  const auto name = known(state().made, handle, #function); \
  if (!name) return kInvalidHandle

Result cuInit(unsigned) { return kSuccess; }
Result cuDriverGetVersion(int* version) {
  *version = 12040;
  return kSuccess;
}
Result cuGetErrorName(Result result, const char** name) {
  switch (result) {
    case kInvalidValue:
      *name = "CUDA_ERROR_INVALID_VALUE";
      return kSuccess;
    case kOutOfMemory:
      *name = "CUDA_ERROR_OUT_OF_MEMORY";
      return kSuccess;
    case kInvalidPtx:
      *name = "CUDA_ERROR_INVALID_PTX";
      return kSuccess;
    case kIllegalAddress:
      *name = "CUDA_ERROR_ILLEGAL_ADDRESS";
      return kSuccess;
    default:
      *name = nullptr;
      return kInvalidValue;
  }
}
Result cuGetErrorString(Result result, const char** text) {
  *text = result == kIllegalAddress ? "an illegal memory access was encountered"
          : result == kInvalidPtx   ? "a PTX JIT compilation failed"
          : result == kOutOfMemory  ? "out of memory"
                                    : nullptr;
  return *text ? kSuccess : kInvalidValue;
}

Result cuDeviceGetCount(int* count) {
  readSettings();
  *count = settings().device ? 1 : 0;
  return settings().device ? kSuccess : kNoDevice;
}
Result cuDeviceGet(DeviceNumber* number, int index) {
  *number = index;
  return index == 0 ? kSuccess : kInvalidValue;
}
Result cuDeviceGetName(char* name, int bytes, DeviceNumber) {
  std::snprintf(name, size_t(bytes), "CUDA stand-in (no GPU)");
  return kSuccess;
}
Result cuDeviceGetAttribute(int* value, int which, DeviceNumber) {
  const auto& s = settings();
  const std::map<int, int> values = {{kMaxThreadsPerBlock, s.threads},
                                     {kMaxSharedBytesOfBlock, s.sharedBytes},
                                     {kMajor, s.capability / 10},
                                     {kMinor, s.capability % 10},
                                     {kMemoryPools, s.pools}};
  const auto found = values.find(which);
  if (found == values.end()) return kInvalidValue;
  *value = found->second;
  return kSuccess;
}
Result cuDeviceTotalMem_v2(size_t* bytes, DeviceNumber) {
  *bytes = settings().bytes;
  return kSuccess;
}
Result cuDeviceGetDefaultMemPool(Pool* pool, DeviceNumber) {
  MLXTS_ENTER(cuDeviceGetDefaultMemPool);
  *pool = &state().pool;
  return settings().pools ? kSuccess : kInvalidValue;
}
Result cuMemPoolSetAttribute(Pool, int, void*) {
  MLXTS_ENTER(cuMemPoolSetAttribute);
  return kSuccess;
}
Result cuMemPoolGetAttribute(Pool, int, void* value) {
  MLXTS_ENTER(cuMemPoolGetAttribute);
  std::memset(value, 0, sizeof(uint64_t));  // it keeps nothing
  return kSuccess;
}
Result cuMemGetInfo_v2(size_t* left, size_t* all) {
  MLXTS_ENTER(cuMemGetInfo_v2);
  *all = settings().bytes;
  *left = *all - std::min(*all, deviceMemory().used());
  return kSuccess;
}
Result cuMemPoolTrimTo(Pool, size_t) {
  MLXTS_ENTER(cuMemPoolTrimTo);
  return kSuccess;
}

Result cuDevicePrimaryCtxRetain(Context* context, DeviceNumber) {
  if (const Result result = injected("cuDevicePrimaryCtxRetain"); result != kSuccess) return result;
  auto& s = state();
  *context = &primary;
  std::lock_guard lock(s.life);
  if (s.retained++ > 0) return kSuccess;
  primary.lost = kSuccess;
  note("context " + std::to_string(++s.contexts) + " begins");
  return kSuccess;
}
Result cuDevicePrimaryCtxRelease_v2(DeviceNumber) {
  auto& s = state();
  std::lock_guard lock(s.life);
  if (s.retained == 0) return kInvalidContext;
  if (--s.retained > 0) return kSuccess;
  const size_t streams = s.streams.clear();  // their tasks end
  std::ostringstream left;
  const auto count = [&](size_t number, const char* what) {
    if (number > 0) left << ", " << number << ' ' << what;
  };
  count(streams, "streams");
  count(deviceMemory().live(), "allocations");
  count(s.pinned.clear(), "pinned blocks");
  count(s.events.clear(), "events");
  count(s.modules.clear(), "modules");
  count(s.graphs.clear(), "graphs");
  count(s.execs.clear(), "executable graphs");
  // A lost context takes with it what its calls cannot free any more.
  const bool lost = primary.lost != kSuccess;
  deviceMemory().clear();
  const std::string leaked = left.str();
  note("context ends" + std::string(lost ? ", lost" : leaked.empty() ? "" : " with" + leaked.substr(1)));
  return kSuccess;
}
Result cuCtxPushCurrent_v2(Context context) {
  if (context != &primary) return kInvalidContext;
  currents.push_back(context);
  return kSuccess;
}
Result cuCtxPopCurrent_v2(Context* context) {
  if (currents.empty()) return kInvalidContext;
  *context = currents.back();
  currents.pop_back();
  return kSuccess;
}

Result cuStreamCreate(Stream* stream, unsigned) {
  MLXTS_ENTER(cuStreamCreate);
  static std::atomic<uint64_t> made{0};
  *stream = state().streams.make(settings().seed * 1000 + made++);
  return kSuccess;
}
Result cuStreamDestroy_v2(Stream stream) {
  // A lost context's streams go as well.
  const auto removed = state().streams.remove(stream);
  if (!removed) fault("cuStreamDestroy with a handle that is gone");
  MLXTS_ENTER(cuStreamDestroy_v2);
  return removed ? kSuccess : kInvalidHandle;
}
Result cuStreamSynchronize(Stream stream) {
  MLXTS_ENTER(cuStreamSynchronize);
  MLXTS_KNOWN(found, streams, stream, cuStreamSynchronize);
  found->synchronize();
  return primary.lost;
}
Result cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  MLXTS_ENTER(cuStreamWaitEvent);
  MLXTS_KNOWN(to, streams, stream, cuStreamWaitEvent);
  MLXTS_KNOWN(from, events, event, cuStreamWaitEvent);
  if (const auto moment = from->last)
    to->add(
        [moment] {
          std::unique_lock lock(state().moments);
          state().reached.wait(lock, [&] { return moment->reached.load(); });
        },
        true);
  return kSuccess;
}

Result cuEventCreate(Event* event, unsigned flags) {
  MLXTS_ENTER(cuEventCreate);
  *event = state().events.make(EventOf{!(flags & kEventNoTiming), nullptr});
  return kSuccess;
}
Result cuEventDestroy_v2(Event event) {
  if (!state().events.remove(event)) fault("cuEventDestroy with a handle that is gone");
  MLXTS_ENTER(cuEventDestroy_v2);
  return kSuccess;
}
Result cuEventRecord(Event event, Stream stream) {
  MLXTS_ENTER(cuEventRecord);
  MLXTS_KNOWN(made, events, event, cuEventRecord);
  MLXTS_KNOWN(on, streams, stream, cuEventRecord);
  const auto moment = made->last = std::make_shared<Moment>();
  on->add(
      [moment] {
        std::lock_guard lock(state().moments);
        moment->milliseconds = now();
        moment->reached = true;
        state().reached.notify_all();
      },
      true);
  return kSuccess;
}
Result cuEventQuery(Event event) {
  MLXTS_ENTER(cuEventQuery);
  MLXTS_KNOWN(made, events, event, cuEventQuery);
  return made->last && !made->last->reached ? kNotReady : kSuccess;
}
Result cuEventSynchronize(Event event) {
  MLXTS_ENTER(cuEventSynchronize);
  MLXTS_KNOWN(made, events, event, cuEventSynchronize);
  if (const auto moment = made->last) {
    std::unique_lock lock(state().moments);
    state().reached.wait(lock, [&] { return moment->reached.load(); });
  }
  return primary.lost;
}
Result cuEventElapsedTime(float* milliseconds, Event begin, Event end) {
  MLXTS_ENTER(cuEventElapsedTime);
  MLXTS_KNOWN(first, events, begin, cuEventElapsedTime);
  MLXTS_KNOWN(second, events, end, cuEventElapsedTime);
  if (!first->timed || !second->timed || !first->last || !second->last) return kInvalidHandle;
  if (!first->last->reached || !second->last->reached) return kNotReady;
  *milliseconds = float(second->last->milliseconds - first->last->milliseconds);
  return kSuccess;
}

Result cuMemAlloc_v2(Address* address, size_t bytes) {
  MLXTS_ENTER(cuMemAlloc_v2);
  *address = deviceMemory().reserve(bytes);
  if (!*address) return kOutOfMemory;
  deviceMemory().begin(*address);
  return kSuccess;
}
Result cuMemFree_v2(Address address) {
  MLXTS_ENTER(cuMemFree_v2);
  if (!deviceMemory().give(address)) {
    fault("cuMemFree of what is no memory, or no longer");
    return kInvalidValue;
  }
  for (const auto& stream : state().streams.all()) stream->synchronize();
  deviceMemory().end(address);
  return kSuccess;
}
Result cuMemAllocAsync(Address* address, size_t bytes, Stream stream) {
  MLXTS_ENTER(cuMemAllocAsync);
  MLXTS_KNOWN(on, streams, stream, cuMemAllocAsync);
  const Address made = *address = deviceMemory().reserve(bytes);
  if (!made) return kOutOfMemory;
  on->add([made] { deviceMemory().begin(made); }, true);
  return kSuccess;
}
Result cuMemFreeAsync(Address address, Stream stream) {
  MLXTS_ENTER(cuMemFreeAsync);
  MLXTS_KNOWN(on, streams, stream, cuMemFreeAsync);
  if (!deviceMemory().give(address)) {
    fault("cuMemFreeAsync of what is no memory, or no longer");
    return kInvalidValue;
  }
  on->add([address] { deviceMemory().end(address); }, true);
  return kSuccess;
}
Result cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  MLXTS_ENTER(cuMemHostAlloc);
  const auto made = state().pinned.make(bytes);
  *memory = made->begin;
  return kSuccess;
}
Result cuMemFreeHost(void* memory) {
  std::shared_ptr<Pinned> found;
  for (const auto& one : state().pinned.all())
    if (one->begin == memory) found = state().pinned.remove(one.get());
  if (!found) fault("cuMemFreeHost of what is no pinned memory, or no longer");
  if (found && found->copies > 0 && primary.lost == kSuccess) fault("pinned memory is freed while it is copied");
  MLXTS_ENTER(cuMemFreeHost);
  return found ? kSuccess : kInvalidValue;
}
Result cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Stream stream) {
  MLXTS_ENTER(cuMemcpyHtoDAsync_v2);
  MLXTS_KNOWN(on, streams, stream, cuMemcpyHtoDAsync);
  const auto pinned = pinnedAt(from, bytes, "cuMemcpyHtoDAsync");
  if (!pinned) return kInvalidValue;
  on->add([=, copy = std::make_shared<Copy>(pinned)] {
    std::memcpy(deviceMemory().reach(to, bytes, "a copy").bytes, from, bytes);
  });
  return kSuccess;
}
Result cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, Stream stream) {
  MLXTS_ENTER(cuMemcpyDtoHAsync_v2);
  MLXTS_KNOWN(on, streams, stream, cuMemcpyDtoHAsync);
  const auto pinned = pinnedAt(to, bytes, "cuMemcpyDtoHAsync");
  if (!pinned) return kInvalidValue;
  on->add([=, copy = std::make_shared<Copy>(pinned)] {
    std::memcpy(to, deviceMemory().reach(from, bytes, "a copy").bytes, bytes);
  });
  return kSuccess;
}
Result cuMemsetD8Async(Address to, unsigned char byte, size_t bytes, Stream stream) {
  MLXTS_ENTER(cuMemsetD8Async);
  MLXTS_KNOWN(on, streams, stream, cuMemsetD8Async);
  on->add([=] { fill(deviceMemory().reach(to, bytes, "a fill"), bytes, byte); });
  return kSuccess;
}

// The text names kernels in lines `.entry mlxts_SYMBOL`; a line with `error` does not compile.
Result cuModuleLoadDataEx(Module* module, const void* image, unsigned count, int* options, void** values) {
  MLXTS_ENTER(cuModuleLoadDataEx);
  const std::string text = static_cast<const char*>(image);
  const auto refuse = [&](const std::string& why) {
    char* log = nullptr;
    size_t room = 0;
    for (unsigned i = 0; i < count; ++i) {
      if (options[i] == kJitErrorLog) log = static_cast<char*>(values[i]);
      if (options[i] == kJitErrorLogBytes) room = reinterpret_cast<size_t>(values[i]);
    }
    if (log && room) std::snprintf(log, room, "ptxas application ptx input, line 1; error   : %s", why.c_str());
    return Result(kInvalidPtx);
  };
  auto* made = state().modules.make();
  const std::regex entry("\\.entry mlxts_(\\w+)");
  const bool waits = text.find(".target sm_90") != std::string::npos &&
                     text.find("griddepcontrol.wait;", text.find('{')) != std::string::npos;
  std::string broken = text.find("error") != std::string::npos ? "Parsing error near 'error'" : "";
  for (std::sregex_iterator at(text.begin(), text.end(), entry), end; at != end; ++at) {
    const auto* kernel = kernelOf((*at)[1]);
    if (!kernel) {
      broken = "the stand-in has no kernel " + (*at)[1].str();
      continue;
    }
    auto& function = made->functions["mlxts_" + (*at)[1].str()];
    function = std::make_unique<FunctionOf>();
    function->kernel = kernel;
    function->module = made;
    function->waits = waits && !kernel->early;
  }
  if (!broken.empty()) {
    state().modules.remove(made);
    return refuse(broken);
  }
  *module = made;
  return kSuccess;
}
Result cuModuleUnload(Module module) {
  const auto removed = state().modules.remove(module);
  if (!removed) {
    fault("cuModuleUnload with a handle that is gone");
    return kInvalidHandle;
  }
  removed->loaded = false;
  MLXTS_ENTER(cuModuleUnload);
  return kSuccess;
}
Result cuModuleGetFunction(Function* function, Module module, const char* name) {
  MLXTS_ENTER(cuModuleGetFunction);
  MLXTS_KNOWN(made, modules, module, cuModuleGetFunction);
  const auto found = made->functions.find(name);
  if (found == made->functions.end()) return kNotFound;
  *function = found->second.get();
  return kSuccess;
}
Result cuFuncGetAttribute(int* value, int which, Function) {
  MLXTS_ENTER(cuFuncGetAttribute);
  *value = which == kFunctionMaxThreads ? settings().threads : 0;
  return kSuccess;
}
Result cuFuncSetAttribute(Function function, int which, int value) {
  MLXTS_ENTER(cuFuncSetAttribute);
  if (which == kFunctionSharedPercent) return value >= 0 && value <= 100 ? kSuccess : kInvalidValue;
  if (which != kFunctionMaxDynamicSharedBytes || value < 0 || value > settings().sharedBytes) return kInvalidValue;
  function->mostSharedBytes = unsigned(value);
  return kSuccess;
}
Result cuLaunchKernel(Function function, unsigned gx, unsigned gy, unsigned gz, unsigned tx, unsigned ty, unsigned tz,
                      unsigned sharedBytes, Stream stream, void** arguments, void**) {
  MLXTS_ENTER(cuLaunchKernel);
  MLXTS_KNOWN(on, streams, stream, cuLaunchKernel);
  const auto module = moduleOf(function);
  if (!module) return kInvalidHandle;
  const unsigned groups[] = {gx, gy, gz}, threads[] = {tx, ty, tz};
  if (!fits(*function, groups, threads, sharedBytes)) return kInvalidValue;
  on->add(
      [run = launching(module, *function, groups, threads, sharedBytes, arguments), stream] { run(stream->random); });
  return kSuccess;
}

Result cuGraphCreate(Graph* graph, unsigned) {
  MLXTS_ENTER(cuGraphCreate);
  *graph = state().graphs.make();
  return kSuccess;
}
Result cuGraphDestroy(Graph graph) {
  if (!state().graphs.remove(graph)) fault("cuGraphDestroy with a handle that is gone");
  MLXTS_ENTER(cuGraphDestroy);
  return kSuccess;
}
Result cuGraphAddKernelNode(GraphNode* node, Graph graph, const GraphNode* after, size_t count,
                            const KernelNode* what) {
  MLXTS_ENTER(cuGraphAddKernelNode);
  const auto module = moduleOf(what->function);
  if (!module) return kInvalidHandle;
  if (!fits(*what->function, what->threadgroups, what->threads, what->sharedBytes)) return kInvalidValue;
  const Result result = addNode(
      "cuGraphAddKernelNode", node, graph, after, count,
      launching(module, *what->function, what->threadgroups, what->threads, what->sharedBytes, what->arguments));
  if (result == kSuccess) (*node)->kernel = what->function;
  return result;
}
// A kernel that is launched early and does not wait, or has read before it does, runs at any time.
Result cuGraphAddDependencies_v2(Graph graph, const GraphNode* from, const GraphNode* to, const GraphEdge* edges,
                                 size_t count) {
  MLXTS_ENTER(cuGraphAddDependencies_v2);
  MLXTS_KNOWN(found, graphs, graph, cuGraphAddDependencies);
  for (size_t i = 0; i < count; ++i) {
    if (!edges || edges[i].fromPort != 1 || edges[i].toPort != 0 || edges[i].type != 1) return kInvalidValue;
    if (settings().capability < 90 || !from[i]->kernel || !to[i]->kernel) return kInvalidValue;
    if (to[i]->kernel->waits) found->nodes[to[i]->index].after.push_back(from[i]->index);
  }
  return kSuccess;
}
Result cuGraphAddMemsetNode(GraphNode* node, Graph graph, const GraphNode* after, size_t count, const MemsetNode* what,
                            Context context) {
  MLXTS_ENTER(cuGraphAddMemsetNode);
  if (context != &primary || what->height != 1 || what->width >> 32 || what->elementBytes != 1) return kInvalidValue;
  return addNode("cuGraphAddMemsetNode", node, graph, after, count, [one = *what](Random&) {
    fill(deviceMemory().reach(one.to, one.width, "a fill"), one.width, uint8_t(one.value));
  });
}
Result cuGraphAddEmptyNode(GraphNode* node, Graph graph, const GraphNode* after, size_t count) {
  MLXTS_ENTER(cuGraphAddEmptyNode);
  return addNode("cuGraphAddEmptyNode", node, graph, after, count, [](Random&) {});
}
Result cuGraphInstantiateWithFlags(GraphExec* exec, Graph graph, unsigned long long) {
  MLXTS_ENTER(cuGraphInstantiateWithFlags);
  MLXTS_KNOWN(from, graphs, graph, cuGraphInstantiate);
  *exec = state().execs.make(GraphExecOf{std::make_shared<const std::vector<Node>>(from->nodes)});
  return kSuccess;
}
Result cuGraphUpload(GraphExec, Stream) {
  MLXTS_ENTER(cuGraphUpload);
  return kSuccess;
}
Result cuGraphLaunch(GraphExec exec, Stream stream) {
  MLXTS_ENTER(cuGraphLaunch);
  MLXTS_KNOWN(found, execs, exec, cuGraphLaunch);
  MLXTS_KNOWN(on, streams, stream, cuGraphLaunch);
  on->add([nodes = found->nodes, stream] { runNodes(*nodes, stream->random); });
  return kSuccess;
}
Result cuGraphExecDestroy(GraphExec exec) {
  if (!state().execs.remove(exec)) fault("cuGraphExecDestroy with a handle that is gone");
  MLXTS_ENTER(cuGraphExecDestroy);
  return kSuccess;
}
