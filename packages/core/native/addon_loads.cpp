// Native calls on files that are copied into a device's memory.
#include "handle.h"
#include "native_call.h"

namespace mlxts {

// loadFile(device, path, bytes, moved) -> load; `moved` is called when loadState has something to tell
Napi::Value loadFile(const Napi::CallbackInfo& info) {
  const auto env = info.Env();
  auto& self = handle<DeviceHandle>(info[0]);
  auto& device = self.open();
  self.releases->runAll(env);
  const std::string path = readText(info[1], "path");
  const uint64_t bytes = readSize(info[2], "bytes");
  const Wake moved(env, info[3], "mlxts load");
  auto made = std::make_unique<LoadHandle>(self.dependants, moved);
  self.closeFirst();
  made->load = device.loadFile(path, bytes, moved);
  return makeHandle(env, std::move(made));
}

// loadState(device, load) -> { loaded, memory, ended }: the memory is there when all bytes have arrived. When it
// throws, and when the load has ended, nothing is left of it
Napi::Value loadState(const Napi::CallbackInfo& info) {
  const auto env = info.Env();
  auto& self = handle<DeviceHandle>(info[0]);
  auto& from = handle<LoadHandle>(info[1]);
  if (!from.load) throw Failure("Disposed", "the device has been disposed", "device");
  auto out = Napi::Object::New(env);
  const bool ended = from.load->ended();
  out.Set("ended", ended);
  out.Set("loaded", double(from.load->loaded()));
  if (!ended) return out;
  std::shared_ptr<Memory> memory;
  try {
    memory = from.load->take();
  } catch (...) {
    from.release();
    throw;
  }
  from.release();
  if (memory) out.Set("memory", memoryHandle(env, self, std::move(memory)));
  return out;
}

// stopLoad(load): it ends soon, without memory
Napi::Value stopLoad(const Napi::CallbackInfo& info) {
  if (auto& load = handle<LoadHandle>(info[0]).load) load->stop();
  return info.Env().Undefined();
}

}  // namespace mlxts
