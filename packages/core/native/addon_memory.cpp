// Native calls on memory: buffers of a device, and arrays of JavaScript that it uses.
#include "bus_error.h"
#include "handle.h"
#include "host_array.h"
#include "native_call.h"

namespace mlxts {

namespace {

// The collector frees buffers that nobody has disposed. Of a GPU's own memory, of which there is much, it is told this part:
// it would run for each hundred MB that come and go otherwise.
constexpr uint64_t kToldOfDevice = 16;

void checkRange(const Memory& memory, uint64_t offset, uint64_t bytes) {
  if (offset > memory.bytes() || bytes > memory.bytes() - offset)
    throw Failure("InvalidArgument", "native call: range reaches past the buffer");
}

}  // namespace

Napi::Value memoryHandle(Napi::Env env, const DeviceHandle& device, std::shared_ptr<Memory> memory, uint64_t external) {
  return makeHandle(env, std::make_unique<MemoryHandle>(env, std::move(memory), device, int64_t(external)));
}

// allocate(device, bytes)
Napi::Value allocate(const Napi::CallbackInfo& info) {
  auto& self = handle<DeviceHandle>(info[0]);
  self.releases->runAll(info.Env());
  const uint64_t bytes = readSize(info[1], "bytes");
  auto memory = self.open().allocate(bytes);
  if (!memory)
    throw Failure("BufferAllocation", "the system refused " + std::to_string(bytes) + " bytes", std::to_string(bytes));
  const uint64_t told = memory->access ? bytes / kToldOfDevice : bytes;
  return memoryHandle(info.Env(), self, std::move(memory), told);
}

// wrapMemory(device, typed array, readOnly) -> { memory, lent, detachable }: no copy; the array's bytes are kept while
// the memory is used
Napi::Value wrapMemory(const Napi::CallbackInfo& info) {
  const auto env = info.Env();
  auto& self = handle<DeviceHandle>(info[0]);
  auto& device = self.open();
  self.releases->runAll(env);
  const auto array = hostArray(info[1]);
  const auto held = hold(array);
  napi_ref ref;
  if (napi_create_reference(env, held.keeper, 1, &ref) != napi_ok)
    throw Failure("InvalidArgument", "native call: cannot keep the array");
  auto releases = self.releases;
  auto memory = Memory::wrap(array.data, array.bytes, info[2].ToBoolean(), device.counters,
                             [releases, ref, owner = held.owner] { releases->add(ref); });
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
  return memoryHandle(info.Env(), self, self.open().mapFile(readText(info[1], "path"), readSize(info[2], "bytes")));
}

Napi::Value memoryAddress(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), double(reinterpret_cast<uint64_t>(handle<MemoryHandle>(info[0]).live().data())));
}

// readMemory(memory, offset, typed array): fills the array. JavaScript allocates it, because N-API would end the
// process when there is no memory for it
Napi::Value readMemory(const Napi::CallbackInfo& info) {
  const auto& memory = handle<MemoryHandle>(info[0]).live();
  const uint64_t offset = readSize(info[1], "offset");
  const auto view = hostArray(info[2]);
  checkRange(memory, offset, view.bytes);
  memory.read(offset, view.data, view.bytes);
  return info.Env().Undefined();
}

// writeMemory(memory, offset, typed array)
Napi::Value writeMemory(const Napi::CallbackInfo& info) {
  const auto& memory = handle<MemoryHandle>(info[0]).live();
  const uint64_t offset = readSize(info[1], "offset");
  const auto view = hostArray(info[2]);
  checkRange(memory, offset, view.bytes);
  if (memory.readOnly()) throw Failure("InvalidArgument", "native call: the buffer is read-only");
  memory.write(offset, view.data, view.bytes);
  return info.Env().Undefined();
}

// borrowMemory(memory) -> ArrayBuffer over the memory itself, which lives at least as long
Napi::Value borrowMemory(const Napi::CallbackInfo& info) {
  auto& self = handle<MemoryHandle>(info[0]);
  if (self.live().readOnly()) throw Failure("InvalidArgument", "native call: the buffer is read-only");
  if (self.live().access) throw Failure("InvalidArgument", "native call: the host does not share the buffer's memory");
  return lend(info.Env(), self.memory);
}

// detach(array buffer): its views become empty and do not point to freed memory
Napi::Value detach(const Napi::CallbackInfo& info) {
  if (!info[0].IsArrayBuffer() || napi_detach_arraybuffer(info.Env(), info[0]) != napi_ok)
    throw Failure("InvalidArgument", "native call: cannot detach");
  return info.Env().Undefined();
}

// freeBytes(device) -> what could be allocated, or undefined
Napi::Value freeBytes(const Napi::CallbackInfo& info) {
  const auto bytes = handle<DeviceHandle>(info[0]).open().freeBytes();
  return bytes ? Napi::Number::New(info.Env(), double(*bytes)) : info.Env().Undefined();
}

Napi::Value explainTruncatedFiles(const Napi::CallbackInfo& info) {
  explainBusErrors();
  return info.Env().Undefined();
}

Napi::Value releaseMemory(const Napi::CallbackInfo& info) {
  auto& self = handle<MemoryHandle>(info[0]);
  self.release();
  self.releases->runAll(info.Env());
  return info.Env().Undefined();
}

}  // namespace mlxts
