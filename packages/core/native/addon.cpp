// The only N-API code of the project: flat functions over type-tagged handles. packages/core/src/native.ts is its other
// side.
#include <napi.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "command_list.h"
#include "handle.h"
#include "host_array.h"

namespace mlxts {

namespace {

uint64_t size(const Napi::Value& value, const char* what) {
  const double number = value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : -1;
  if (!(number >= 0 && number <= 9007199254740991.0) || number != double(uint64_t(number)))
    throw Failure("InvalidArgument", std::string("native call: ") + what + " must be a size");
  return uint64_t(number);
}

std::string text(const Napi::Value& value, const char* what) {
  if (!value.IsString()) throw Failure("InvalidArgument", std::string("native call: ") + what + " must be a string");
  return value.As<Napi::String>().Utf8Value();
}

void checkRange(const Memory& memory, uint64_t offset, uint64_t bytes) {
  if (offset > memory.bytes() || bytes > memory.bytes() - offset)
    throw Failure("InvalidArgument", "native call: range reaches past the buffer");
}

Napi::Value cpuLevelsOf(const Napi::CallbackInfo& info) {
  auto out = Napi::Array::New(info.Env());
  for (const auto& level : cpuLevels()) out.Set(out.Length(), level);
  return out;
}

std::shared_ptr<Device> openKind(const Napi::Object& given) {
  if (text(given.Get("kind"), "kind") == "metal") {
#ifdef MLXTS_METAL
    return openMetalDevice({text(given.Get("capture"), "capture")});
#else
    throw Failure("DeviceNotFound", "this build has no metal device");
#endif
  }
  CpuOptions options;
  options.threads = unsigned(size(given.Get("threads"), "threads"));
  options.level = text(given.Get("level"), "level");
  options.order =
      text(given.Get("order"), "order") == "reverse" ? CpuOptions::Order::reverse : CpuOptions::Order::forward;
  return openCpuDevice(options);
}

// openDevice({ kind, threads, level, order, capture }, onEnded)
Napi::Value openDevice(const Napi::CallbackInfo& info) {
  const auto env = info.Env();
  auto self = std::make_unique<DeviceHandle>();
  self->device = openKind(info[0].As<Napi::Object>());
  self->env = env;
  self->wake = Napi::ThreadSafeFunction::New(env, info[1].As<Napi::Function>(), "mlxts", 0, 1);
  self->wake.Unref(env);
  // After the thread-safe function's own hook, so that this one runs first and no call can follow its end.
  self->closeFirst();
  return makeHandle(env, std::move(self));
}

Napi::Value deviceInfo(const Napi::CallbackInfo& info) {
  const auto env = info.Env();
  const auto& from = handle<DeviceHandle>(info[0]).open().info();
  auto limits = Napi::Object::New(env);
  const auto set = [&](const char* name, double value) { limits.Set(name, Napi::Number::New(env, value)); };
  set("maxThreadsPerThreadgroup", from.limits.maxThreadsPerThreadgroup);
  set("maxThreadgroupBytes", from.limits.maxThreadgroupBytes);
  set("maxBufferSlots", from.limits.maxBufferSlots);
  set("maxInlineBytes", from.limits.maxInlineBytes);
  set("bufferOffsetAlignment", from.limits.bufferOffsetAlignment);
  set("wrapAlignment", from.limits.wrapAlignment);
  set("pageBytes", from.limits.pageBytes);
  set("threads", from.limits.threads);
  set("maxBufferBytes", double(from.limits.maxBufferBytes));
  set("maxThreadgroupsPerAxis", double(from.limits.maxThreadgroupsPerAxis));
  auto out = Napi::Object::New(env);
  out.Set("kind", from.kind);
  out.Set("name", from.name);
  out.Set("level", from.level);
  out.Set("unifiedMemory", from.unifiedMemory);
  out.Set("kernelsFromSource", from.kernelsFromSource);
  out.Set("limits", limits);
  return out;
}

// memoryCounters(device) -> [live buffers, live bytes, peak bytes]
Napi::Value memoryCounters(const Napi::CallbackInfo& info) {
  auto& device = handle<DeviceHandle>(info[0]).open();
  auto out = Napi::Array::New(info.Env());
  const auto& c = *device.counters;
  for (const uint64_t value : {c.liveBuffers.load(), c.liveBytes.load(), c.peakBytes.load()})
    out.Set(out.Length(), double(value));
  return out;
}

Napi::Value resetPeakBytes(const Napi::CallbackInfo& info) {
  auto& c = *handle<DeviceHandle>(info[0]).open().counters;
  c.peakBytes = c.liveBytes.load();
  return info.Env().Undefined();
}

Napi::Value closeDevice(const Napi::CallbackInfo& info) {
  handle<DeviceHandle>(info[0]).close();
  return info.Env().Undefined();
}

Napi::Value memoryHandle(Napi::Env env, const DeviceHandle& device, std::shared_ptr<Memory> memory,
                         uint64_t external = 0) {
  return makeHandle(env, std::make_unique<MemoryHandle>(env, std::move(memory), device, int64_t(external)));
}

// allocate(device, bytes)
Napi::Value allocate(const Napi::CallbackInfo& info) {
  auto& self = handle<DeviceHandle>(info[0]);
  self.graveyard->sweep(info.Env());
  const uint64_t bytes = size(info[1], "bytes");
  auto memory = self.open().allocate(bytes);
  if (!memory)
    throw Failure("BufferAllocation", "the system refused " + std::to_string(bytes) + " bytes", std::to_string(bytes));
  return memoryHandle(info.Env(), self, std::move(memory), bytes);
}

// wrap(device, typed array, readOnly) -> { memory, lent, detachable }: no copy, the bytes are held while the memory is
// used
Napi::Value wrapMemory(const Napi::CallbackInfo& info) {
  const auto env = info.Env();
  auto& self = handle<DeviceHandle>(info[0]);
  auto& device = self.open();
  self.graveyard->sweep(env);
  const auto array = hostArray(info[1]);
  const auto held = hold(array);
  napi_ref ref;
  if (napi_create_reference(env, held.keeper, 1, &ref) != napi_ok)
    throw Failure("InvalidArgument", "native call: cannot keep the array");
  auto graveyard = self.graveyard;
  auto memory = Memory::wrap(array.data, array.bytes, info[2].ToBoolean(), device.counters,
                             [graveyard, ref, owner = held.owner] { graveyard->bury(ref); });
  device.attach(*memory);
  self.closeFirst();
  auto out = Napi::Object::New(env);
  out.Set("memory", memoryHandle(env, self, std::move(memory)));
  out.Set("lent", held.lent);
  out.Set("detachable", held.detachable);
  return out;
}

// mapFile(device, path, bytes)
Napi::Value mapFile(const Napi::CallbackInfo& info) {
  auto& self = handle<DeviceHandle>(info[0]);
  auto& device = self.open();
  const std::string path = text(info[1], "path");
  int error = 0;
  auto memory = Memory::map(path, size(info[2], "bytes"), device.info().limits.wrapAlignment, device.counters, error);
  if (!memory) throw Failure("Io", std::strerror(error), path);
  device.attach(*memory);
  return memoryHandle(info.Env(), self, std::move(memory));
}

Napi::Value memoryAddress(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), double(reinterpret_cast<uint64_t>(handle<MemoryHandle>(info[0]).live().data())));
}

// readMemory(memory, offset, typed array): fills it. JavaScript allocated it, because N-API would abort for want of
// memory
Napi::Value readMemory(const Napi::CallbackInfo& info) {
  const auto& memory = handle<MemoryHandle>(info[0]).live();
  const uint64_t offset = size(info[1], "offset");
  const auto view = hostArray(info[2]);
  checkRange(memory, offset, view.bytes);
  if (view.bytes) std::memmove(view.data, memory.data() + offset, view.bytes);
  return info.Env().Undefined();
}

// writeMemory(memory, offset, typed array)
Napi::Value writeMemory(const Napi::CallbackInfo& info) {
  const auto& memory = handle<MemoryHandle>(info[0]).live();
  const uint64_t offset = size(info[1], "offset");
  const auto view = hostArray(info[2]);
  checkRange(memory, offset, view.bytes);
  if (memory.readOnly()) throw Failure("InvalidArgument", "native call: the buffer is read-only");
  if (view.bytes) std::memmove(memory.data() + offset, view.data, view.bytes);
  return info.Env().Undefined();
}

// borrowMemory(memory) -> ArrayBuffer over the memory itself, which lives at least as long
Napi::Value borrowMemory(const Napi::CallbackInfo& info) {
  auto& self = handle<MemoryHandle>(info[0]);
  if (self.live().readOnly()) throw Failure("InvalidArgument", "native call: the buffer is read-only");
  return lend(info.Env(), self.memory);
}

// detach(array buffer): host views become empty instead of pointing at freed memory
Napi::Value detach(const Napi::CallbackInfo& info) {
  if (!info[0].IsArrayBuffer() || napi_detach_arraybuffer(info.Env(), info[0]) != napi_ok)
    throw Failure("InvalidArgument", "native call: cannot detach");
  return info.Env().Undefined();
}

Napi::Value releaseMemory(const Napi::CallbackInfo& info) {
  auto& self = handle<MemoryHandle>(info[0]);
  self.release();
  self.graveyard->sweep(info.Env());
  return info.Env().Undefined();
}

// openLibrary(device, path or source, name)
Napi::Value openLibrary(const Napi::CallbackInfo& info) {
  auto self = std::make_unique<LibraryHandle>();
  self->library = handle<DeviceHandle>(info[0]).open().openLibrary(text(info[1], "from"), text(info[2], "name"));
  return makeHandle(info.Env(), std::move(self));
}

// pipeline(device, library, symbol) -> id
Napi::Value pipeline(const Napi::CallbackInfo& info) {
  auto& device = handle<DeviceHandle>(info[0]).open();
  return Napi::Number::New(info.Env(),
                           device.pipeline(handle<LibraryHandle>(info[1]).library, text(info[2], "symbol")));
}

// pipelineThreads(device, pipeline) -> the most threads of a threadgroup
Napi::Value pipelineThreads(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(),
                           handle<DeviceHandle>(info[0]).open().maxThreads(uint32_t(size(info[1], "pipeline"))));
}

// (device, Uint32Array words, count, memory handles) -> the checked list
std::shared_ptr<const CommandList> commandList(const Napi::CallbackInfo& info) {
  const auto words = hostArray(info[1]);
  const uint64_t count = size(info[2], "count");
  if (count > words.bytes / 4 || !info[3].IsArray())
    throw Failure("InvalidArgument", "native call: command list out of range");
  const auto handles = info[3].As<Napi::Array>();
  std::vector<std::shared_ptr<Memory>> memories;
  for (uint32_t i = 0; i < handles.Length(); ++i) {
    auto& memory = handle<MemoryHandle>(handles.Get(i));
    memory.live();
    memories.push_back(memory.memory);
  }
  return decodeCommandList(reinterpret_cast<const uint32_t*>(words.data), count, std::move(memories));
}

// record(device, words, count, memory handles) -> recording
Napi::Value record(const Napi::CallbackInfo& info) {
  auto& device = handle<DeviceHandle>(info[0]);
  device.open();
  return makeHandle(info.Env(), std::make_unique<RecordingHandle>(commandList(info), device.dependants));
}

Napi::Value releaseRecording(const Napi::CallbackInfo& info) {
  handle<RecordingHandle>(info[0]).release();
  return info.Env().Undefined();
}

// A call still queued when the environment ends finds that no JavaScript can run any more, and that is no error.
void callOnEnded(Napi::Env env, Napi::Function onEnded) {
  napi_value global, result;
  if (env == nullptr || onEnded.IsEmpty() || napi_get_global(env, &global) != napi_ok) return;
  if (napi_call_function(env, global, onEnded, 0, nullptr, &result) != napi_pending_exception) return;
  napi_value error;
  if (napi_get_and_clear_last_exception(env, &error) == napi_ok) napi_fatal_exception(env, error);
}

// Hands a list to the device; onEnded is called once it has ended.
Napi::Value submitList(Napi::Env env, DeviceHandle& self, std::shared_ptr<const CommandList> list, bool profile) {
  auto& device = self.open();
  const uint64_t id = ++self.lastId;
  auto completions = self.completions;
  auto wake = self.wake;
  device.submit(id, std::move(list), {profile}, [completions, wake](Outcome outcome) {
    bool first;
    {
      std::lock_guard lock(completions->mutex);
      first = completions->ended.empty();
      completions->lastEnded = outcome.id;
      completions->ended.push_back(std::move(outcome));
    }
    completions->changed.notify_all();
    // One call takes all that have ended by then.
    if (first) wake.NonBlockingCall(callOnEnded);
  });
  if (self.pending++ == 0) self.wake.Ref(env);
  return Napi::Number::New(env, double(id));
}

// submit(device, recording, profile) -> id
Napi::Value submit(const Napi::CallbackInfo& info) {
  auto& self = handle<DeviceHandle>(info[0]);
  const auto list = handle<RecordingHandle>(info[1]).list;
  if (!list) throw Failure("Disposed", "the recording has been disposed", "recording");
  return submitList(info.Env(), self, list, info[2].ToBoolean());
}

// run(device, words, count, memory handles, profile) -> id: record and submit in one, for a list that runs once
Napi::Value run(const Napi::CallbackInfo& info) {
  auto& self = handle<DeviceHandle>(info[0]);
  return submitList(info.Env(), self, commandList(info), info[4].ToBoolean());
}

// takeEnded(device) -> the submissions that ended since the last call, in order
Napi::Value takeEnded(const Napi::CallbackInfo& info) {
  const auto env = info.Env();
  auto& self = handle<DeviceHandle>(info[0]);
  self.graveyard->sweep(env);
  std::vector<Outcome> ended;
  {
    std::lock_guard lock(self.completions->mutex);
    ended.swap(self.completions->ended);
  }
  auto out = Napi::Array::New(env, ended.size());
  uint32_t at = 0;
  for (const auto& outcome : ended) {
    auto object = Napi::Object::New(env);
    object.Set("id", double(outcome.id));
    object.Set("milliseconds", outcome.milliseconds);
    if (!outcome.code.empty()) {
      object.Set("code", outcome.code);
      object.Set("cause", outcome.cause);
      object.Set("message", outcome.message);
      if (outcome.tag != kUnknownTag) object.Set("tag", outcome.tag);
      if (outcome.fault.code) {
        auto fault = Napi::Array::New(env, 4);
        fault.Set(0u, outcome.fault.code);
        for (uint32_t i = 0; i < 3; ++i) fault.Set(i + 1, outcome.fault.words[i]);
        object.Set("fault", fault);
      }
    }
    if (!outcome.microseconds.empty()) {
      auto times = Napi::Float64Array::New(env, outcome.microseconds.size());
      std::copy(outcome.microseconds.begin(), outcome.microseconds.end(), times.Data());
      object.Set("microseconds", times);
    }
    out.Set(at++, object);
  }
  if (!ended.empty() && (self.pending -= ended.size()) == 0 && self.device) self.wake.Unref(env);
  return out;
}

// waitFor(device, id): blocks until that submission has ended
Napi::Value waitFor(const Napi::CallbackInfo& info) {
  auto& self = handle<DeviceHandle>(info[0]);
  const uint64_t id = size(info[1], "id");
  if (id > self.lastId) throw Failure("InvalidArgument", "native call: unknown submission");
  std::unique_lock lock(self.completions->mutex);
  self.completions->changed.wait(lock, [&] { return self.completions->lastEnded >= id; });
  return info.Env().Undefined();
}

// Every entry point passes here: a Failure becomes a JavaScript error that carries its code.
template <Napi::Value (*function)(const Napi::CallbackInfo&)>
Napi::Value guarded(const Napi::CallbackInfo& info) {
  const auto raise = [&](const Failure& failure) {
    auto error = Napi::Error::New(info.Env(), failure.what());
    error.Set("code", Napi::String::New(info.Env(), failure.code));
    error.Set("detail", Napi::String::New(info.Env(), failure.detail));
    throw error;
  };
  try {
    return function(info);
  } catch (const Failure& failure) {
    raise(failure);
  } catch (const std::bad_alloc&) {
    raise(Failure("BufferAllocation", "out of memory"));
  }
  return info.Env().Undefined();
}

Napi::Object init(Napi::Env env, Napi::Object exports) {
#define MLXTS_EXPORT(name, function) exports.Set(name, Napi::Function::New(env, guarded<function>, name))
  MLXTS_EXPORT("cpuLevels", cpuLevelsOf);
  MLXTS_EXPORT("openDevice", openDevice);
  MLXTS_EXPORT("deviceInfo", deviceInfo);
  MLXTS_EXPORT("memoryCounters", memoryCounters);
  MLXTS_EXPORT("resetPeakBytes", resetPeakBytes);
  MLXTS_EXPORT("closeDevice", closeDevice);
  MLXTS_EXPORT("allocate", allocate);
  MLXTS_EXPORT("wrapMemory", wrapMemory);
  MLXTS_EXPORT("mapFile", mapFile);
  MLXTS_EXPORT("memoryAddress", memoryAddress);
  MLXTS_EXPORT("readMemory", readMemory);
  MLXTS_EXPORT("writeMemory", writeMemory);
  MLXTS_EXPORT("borrowMemory", borrowMemory);
  MLXTS_EXPORT("detach", detach);
  MLXTS_EXPORT("releaseMemory", releaseMemory);
  MLXTS_EXPORT("openLibrary", openLibrary);
  MLXTS_EXPORT("pipeline", pipeline);
  MLXTS_EXPORT("pipelineThreads", pipelineThreads);
  MLXTS_EXPORT("record", record);
  MLXTS_EXPORT("releaseRecording", releaseRecording);
  MLXTS_EXPORT("submit", submit);
  MLXTS_EXPORT("run", run);
  MLXTS_EXPORT("takeEnded", takeEnded);
  MLXTS_EXPORT("waitFor", waitFor);
  return exports;
}

NODE_API_MODULE(mlxts_core, init)

}  // namespace

}  // namespace mlxts
