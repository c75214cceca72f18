// The addon: its functions are flat and take type-tagged handles. Only core has N-API code. Here are the calls on
// devices and libraries, and the table of all exports.
#include "handle.h"
#include "native_call.h"

namespace mlxts {

uint64_t readSize(const Napi::Value& value, const char* what) {
  const double number = value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : -1;
  if (!(number >= 0 && number <= 9007199254740991.0) || number != double(uint64_t(number)))
    throw Failure("InvalidArgument", std::string("native call: ") + what + " must be a size");
  return uint64_t(number);
}

std::string readText(const Napi::Value& value, const char* what) {
  if (!value.IsString()) throw Failure("InvalidArgument", std::string("native call: ") + what + " must be a string");
  return value.As<Napi::String>().Utf8Value();
}

// A call may still be queued when the environment ends. JavaScript cannot run then; that is no error.
void callFromThread(Napi::Env env, Napi::Function function, void*, void*) {
  napi_value global, result;
  if (env == nullptr || function.IsEmpty() || napi_get_global(env, &global) != napi_ok) return;
  if (napi_call_function(env, global, function, 0, nullptr, &result) != napi_pending_exception) return;
  napi_value error;
  if (napi_get_and_clear_last_exception(env, &error) == napi_ok) napi_fatal_exception(env, error);
}

namespace {

Napi::Value cpuLevelsOf(const Napi::CallbackInfo& info) {
  auto out = Napi::Array::New(info.Env());
  for (const auto& level : cpuLevels()) out.Set(out.Length(), level);
  return out;
}

std::shared_ptr<Device> openKind(const Napi::Object& given) {
  const auto kind = readText(given.Get("kind"), "kind");
  if (kind == "cuda") return openCudaDevice({readText(given.Get("driver"), "driver")});
  if (kind == "metal") {
#ifdef MLXTS_METAL
    return openMetalDevice({readText(given.Get("capture"), "capture")});
#else
    throw Failure("DeviceNotFound", "this build has no metal device");
#endif
  }
  CpuOptions options;
  options.threads = unsigned(readSize(given.Get("threads"), "threads"));
  options.level = readText(given.Get("level"), "level");
  options.order =
      readText(given.Get("order"), "order") == "reverse" ? CpuOptions::Order::reverse : CpuOptions::Order::forward;
  return openCpuDevice(options);
}

// openDevice({ kind, threads, level, order, capture, driver }, onEnded)
Napi::Value openDevice(const Napi::CallbackInfo& info) {
  const auto env = info.Env();
  auto self = std::make_unique<DeviceHandle>();
  self->device = openKind(info[0].As<Napi::Object>());
  self->env = env;
  self->wake = Wake(env, info[1], "mlxts");
  self->wake.keepAlive(env, false);
  // The thread-safe function has added a cleanup hook of its own. Hooks run last in, first out: the device closes
  // first, and calls nothing afterwards.
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
  auto axes = Napi::Array::New(env, 3);
  for (uint32_t axis = 0; axis < 3; ++axis) axes.Set(axis, double(from.limits.maxThreadgroupsPerAxis[axis]));
  limits.Set("maxThreadgroupsPerAxis", axes);
  auto out = Napi::Object::New(env);
  out.Set("kind", from.kind);
  out.Set("name", from.name);
  out.Set("level", from.level);
  out.Set("unifiedMemory", from.unifiedMemory);
  out.Set("kernelFormat", from.kernelFormat);
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

// openLibrary(device, path or source, name)
Napi::Value openLibrary(const Napi::CallbackInfo& info) {
  auto& device = handle<DeviceHandle>(info[0]);
  auto library = device.open().openLibrary(readText(info[1], "from"), readText(info[2], "name"));
  return makeHandle(info.Env(), std::make_unique<LibraryHandle>(std::move(library), device.dependants));
}

// contract(library, kernel) -> what the kernel was compiled for, or 0
Napi::Value contract(const Napi::CallbackInfo& info) {
  const auto library = handle<LibraryHandle>(info[0]).library;
  if (!library) throw Failure("Disposed", "the device has been disposed", "device");
  return Napi::Number::New(info.Env(), library->contract(readText(info[1], "kernel")));
}

// pipeline(device, library, symbol) -> id
Napi::Value pipeline(const Napi::CallbackInfo& info) {
  auto& device = handle<DeviceHandle>(info[0]).open();
  return Napi::Number::New(info.Env(),
                           device.pipeline(handle<LibraryHandle>(info[1]).library, readText(info[2], "symbol")));
}

// pipelineThreads(device, pipeline) -> the most threads of a threadgroup
Napi::Value pipelineThreads(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(),
                           handle<DeviceHandle>(info[0]).open().maxThreads(uint32_t(readSize(info[1], "pipeline"))));
}

// Throws an error in JavaScript. A worker may be ending in the middle of a call: JavaScript runs no more then, and takes no
// error, so what these functions return is of no interest.
void raise(napi_env env, const Failure& failure) {
  const auto text = [env](const std::string& from) {
    napi_value value = nullptr;
    napi_create_string_utf8(env, from.c_str(), from.size(), &value);
    return value;
  };
  napi_value error = nullptr;
  if (napi_create_error(env, nullptr, text(failure.what()), &error) != napi_ok) return;
  napi_set_named_property(env, error, "code", text(failure.code));
  napi_set_named_property(env, error, "detail", text(failure.detail));
  napi_throw(env, error);
}

// Every call from JavaScript runs inside this one: a Failure becomes a JavaScript error with its code, and no exception
// leaves it. That is why no function of Napi wraps it: what these cannot throw in JavaScript they throw again, which ends
// the process.
template <typename Call>
napi_value guarded(napi_env env, Call&& call) noexcept {
  try {
    try {
      return call();
    } catch (const Failure& failure) {
      raise(env, failure);
    } catch (const std::bad_alloc&) {
      raise(env, Failure("BufferAllocation", "out of memory"));
    } catch (const Napi::Error& error) {
      napi_throw(env, error.Value());
    } catch (const std::exception& error) {
      napi_throw_error(env, nullptr, error.what());
    }
  } catch (...) {  // JavaScript is ending
  }
  return nullptr;
}

template <Napi::Value (*function)(const Napi::CallbackInfo&)>
napi_value exported(napi_env env, napi_callback_info given) {
  return guarded(env, [&] { return napi_value(function(Napi::CallbackInfo(env, given))); });
}

void addExports(Napi::Env env, Napi::Object exports) {
  const auto add = [&](const char* name, napi_callback callback) {
    napi_value function;
    if (napi_create_function(env, name, NAPI_AUTO_LENGTH, callback, nullptr, &function) != napi_ok)
      throw Napi::Error::New(env);
    exports.Set(name, function);
  };
#define MLXTS_EXPORT(name, function) add(name, exported<function>)
  MLXTS_EXPORT("cpuLevels", cpuLevelsOf);
  MLXTS_EXPORT("openDevice", openDevice);
  MLXTS_EXPORT("deviceInfo", deviceInfo);
  MLXTS_EXPORT("memoryCounters", memoryCounters);
  MLXTS_EXPORT("resetPeakBytes", resetPeakBytes);
  MLXTS_EXPORT("closeDevice", closeDevice);
  MLXTS_EXPORT("allocate", allocate);
  MLXTS_EXPORT("wrapMemory", wrapMemory);
  MLXTS_EXPORT("mapFile", mapFile);
  MLXTS_EXPORT("loadFile", loadFile);
  MLXTS_EXPORT("loadState", loadState);
  MLXTS_EXPORT("stopLoad", stopLoad);
  MLXTS_EXPORT("memoryAddress", memoryAddress);
  MLXTS_EXPORT("readMemory", readMemory);
  MLXTS_EXPORT("writeMemory", writeMemory);
  MLXTS_EXPORT("borrowMemory", borrowMemory);
  MLXTS_EXPORT("detach", detach);
  MLXTS_EXPORT("freeBytes", freeBytes);
  MLXTS_EXPORT("explainTruncatedFiles", explainTruncatedFiles);
  MLXTS_EXPORT("releaseMemory", releaseMemory);
  MLXTS_EXPORT("openLibrary", openLibrary);
  MLXTS_EXPORT("contract", contract);
  MLXTS_EXPORT("pipeline", pipeline);
  MLXTS_EXPORT("pipelineThreads", pipelineThreads);
  MLXTS_EXPORT("record", record);
  MLXTS_EXPORT("releaseRecording", releaseRecording);
  MLXTS_EXPORT("submit", submit);
  MLXTS_EXPORT("run", run);
  MLXTS_EXPORT("takeEnded", takeEnded);
  MLXTS_EXPORT("waitFor", waitFor);
#undef MLXTS_EXPORT
}

}  // namespace

}  // namespace mlxts

NAPI_MODULE_INIT() {
  return mlxts::guarded(env, [&] {
    mlxts::addExports(env, Napi::Object(env, exports));
    return exports;
  });
}
