// Handles: JavaScript objects that own a C++ value. Each carries a type tag, so that it cannot be used as another kind.
#pragma once
#include <napi.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "device.h"
#include "native_call.h"

namespace mlxts {

template <typename T>
struct HandleTag;  // one napi_type_tag and one name for each handle type

// The upper half of every tag; the lower half tells the kinds apart.
inline constexpr uint64_t kHandleTags = 0x6d6c7874735f6831;

// The object owns the value from here on.
template <typename T>
void tag(const Napi::Object& object, std::unique_ptr<T> value) {
  const napi_env env = object.Env();
  napi_status status = napi_wrap(
      env, object, value.get(), [](napi_env, void* data, void*) { delete static_cast<T*>(data); }, nullptr, nullptr);
  if (status == napi_ok) {
    value.release();
    status = napi_type_tag_object(env, object, &HandleTag<T>::tag);
  }
  if (status != napi_ok) throw Failure("InvalidArgument", std::string("cannot make a handle of ") + HandleTag<T>::name);
}

// The T that the object owns; null when it owns none.
template <typename T>
T* tagged(const Napi::Value& value) {
  bool matches = false;
  void* data = nullptr;
  if (!value.IsObject() || napi_check_object_type_tag(value.Env(), value, &HandleTag<T>::tag, &matches) != napi_ok ||
      !matches || napi_unwrap(value.Env(), value, &data) != napi_ok)
    return nullptr;
  return static_cast<T*>(data);
}

template <typename T>
Napi::Object makeHandle(Napi::Env env, std::unique_ptr<T> value) {
  auto object = Napi::Object::New(env);
  tag(object, std::move(value));
  return object;
}

template <typename T>
T& handle(const Napi::Value& value) {
  if (auto* found = tagged<T>(value)) return *found;
  throw Failure("InvalidArgument", std::string("native call: handle must be a ") + HandleTag<T>::name);
}

// References to JavaScript values that native memory no longer needs. Any thread adds them; only the JavaScript thread
// may delete them.
struct PendingReleases {
  std::mutex mutex;
  std::vector<napi_ref> pending;
  void add(napi_ref ref) {
    std::lock_guard lock(mutex);
    pending.push_back(ref);
  }
  void runAll(Napi::Env env) {
    std::vector<napi_ref> refs;
    {
      std::lock_guard lock(mutex);
      refs.swap(pending);
    }
    for (auto ref : refs) napi_delete_reference(env, ref);
  }
};

// A function of JavaScript that any thread may have called, without arguments, until `release`. Nobody may ask for a call
// after that; JavaScript may end before it makes one that is queued.
class Wake {
 public:
  Wake() = default;
  Wake(Napi::Env env, const Napi::Value& function, const char* name)
      : call_(Call::New(env, function.As<Napi::Function>(), name, 0, 1)) {}
  void operator()() const { call_.NonBlockingCall(); }
  // Whether it keeps the event loop going; it does at first.
  void keepAlive(Napi::Env env, bool keeps) const { keeps ? call_.Ref(env) : call_.Unref(env); }
  void release() {
    // Node.js ends the process when it is given none.
    if (napi_threadsafe_function(call_)) call_.Release();
    call_ = {};
  }

 private:
  using Call = Napi::TypedThreadSafeFunction<void, void, callFromThread>;
  Call call_;
};

// Submissions that have ended, passed from the device's thread to JavaScript.
struct Completions {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Outcome> ended;  // in order
  std::atomic<uint64_t> lastEnded{0};
};

// A handle that loses its contents when the device is closed, also when JavaScript still holds it.
struct Dependant {
  virtual ~Dependant() = default;
  virtual void release() = 0;
};
using Dependants = std::unordered_set<Dependant*>;

struct DeviceHandle {
  std::shared_ptr<Device> device;
  std::shared_ptr<Dependants> dependants = std::make_shared<Dependants>();
  std::shared_ptr<Completions> completions = std::make_shared<Completions>();
  std::shared_ptr<PendingReleases> releases = std::make_shared<PendingReleases>();
  Wake wake;
  napi_env env = nullptr;
  bool hooked = false;  // closeHook is to be called
  uint64_t lastId = 0, pending = 0;

  // Waits for work in flight and ends the device: at dispose, at collection, or when the environment ends.
  void close();
  // Lets the device close, when the environment ends, before all that exists now: cleanup hooks run last in, first out.
  // To be called again whenever an array is wrapped, which is freed then, or a thread-safe function made.
  void closeFirst() {
    unhook();
    hooked = napi_add_env_cleanup_hook(env, closeHook, this) == napi_ok;
  }
  // Some runtimes end the process when a hook is removed that is not there, or that runs.
  void unhook() {
    if (hooked) napi_remove_env_cleanup_hook(env, closeHook, this);
    hooked = false;
  }
  static void closeHook(void* device) {
    auto& self = *static_cast<DeviceHandle*>(device);
    self.hooked = false;
    self.close();
  }
  ~DeviceHandle() { close(); }
  Device& open() const {
    if (!device) throw Failure("Disposed", "the device has been disposed", "device");
    return *device;
  }
};

struct MemoryHandle : Dependant {
  napi_env env;
  std::shared_ptr<Memory> memory;
  std::shared_ptr<Dependants> siblings;
  std::shared_ptr<PendingReleases> releases;
  int64_t external;  // bytes that the garbage collector knows of
  MemoryHandle(napi_env env, std::shared_ptr<Memory> memory, const DeviceHandle& device, int64_t external)
      : env(env),
        memory(std::move(memory)),
        siblings(device.dependants),
        releases(device.releases),
        external(external) {
    this->siblings->insert(this);
    tellCollector(external);
  }
  ~MemoryHandle() override {
    release();
    siblings->erase(this);
  }
  void release() override {
    if (memory) tellCollector(-external);
    memory.reset();
  }
  Memory& live() const {
    if (!memory) throw Failure("Disposed", "the buffer has been disposed", "buffer");
    return *memory;
  }

 private:
  void tellCollector(int64_t change) {
    int64_t now;
    if (change != 0) napi_adjust_external_memory(env, change, &now);
  }
};

struct RecordingHandle : Dependant {
  std::shared_ptr<const CommandList> list;
  std::shared_ptr<Dependants> siblings;
  RecordingHandle(std::shared_ptr<const CommandList> list, std::shared_ptr<Dependants> siblings)
      : list(std::move(list)), siblings(std::move(siblings)) {
    this->siblings->insert(this);
  }
  ~RecordingHandle() override { siblings->erase(this); }
  void release() override { list.reset(); }
};

inline void DeviceHandle::close() {
  if (!device) return;
  device->drain();
  for (auto* dependant : *dependants) dependant->release();
  device.reset();
  wake.release();
  unhook();
  releases->runAll(env);
}

// A file that is copied into memory of the device.
struct LoadHandle : Dependant {
  std::shared_ptr<Dependants> siblings;
  Wake moved;  // keeps the process alive until the load is released
  std::unique_ptr<FileLoad> load;
  LoadHandle(std::shared_ptr<Dependants> siblings, Wake moved)
      : siblings(std::move(siblings)), moved(std::move(moved)) {
    this->siblings->insert(this);
  }
  ~LoadHandle() override {
    release();
    siblings->erase(this);
  }
  // Waits for the load's threads, whose last call is queued then, and frees its memory unless that was taken.
  void release() override {
    load.reset();
    moved.release();
  }
};

struct LibraryHandle : Dependant {
  std::shared_ptr<Library> library;
  std::shared_ptr<Dependants> siblings;
  LibraryHandle(std::shared_ptr<Library> library, std::shared_ptr<Dependants> siblings)
      : library(std::move(library)), siblings(std::move(siblings)) {
    this->siblings->insert(this);
  }
  ~LibraryHandle() override { siblings->erase(this); }
  void release() override { library.reset(); }
};

#define MLXTS_HANDLE(type, low)                           \
  template <>                                             \
  struct HandleTag<type> {                                \
    static constexpr napi_type_tag tag{kHandleTags, low}; \
    static constexpr const char* name = #type;            \
  };
MLXTS_HANDLE(DeviceHandle, 1)
MLXTS_HANDLE(MemoryHandle, 2)
MLXTS_HANDLE(LibraryHandle, 3)
MLXTS_HANDLE(RecordingHandle, 4)
MLXTS_HANDLE(LoadHandle, 5)
#undef MLXTS_HANDLE

}  // namespace mlxts
