// Native calls on command lists: recording, submitting, and the ends of submissions.
#include <algorithm>
#include <mutex>
#include <vector>

#include "command_list.h"
#include "handle.h"
#include "host_array.h"
#include "native_call.h"
#include "spin.h"

namespace mlxts {

namespace {

// (device, Uint32Array words, count, memory handles) -> the checked list
std::shared_ptr<const CommandList> commandList(const Napi::CallbackInfo& info) {
  const auto words = hostArray(info[1]);
  const uint64_t count = readSize(info[2], "count");
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

// Hands a list to the device; onEnded is called once it has ended.
Napi::Value submitList(Napi::Env env, DeviceHandle& self, std::shared_ptr<const CommandList> list,
                       SubmitOptions options) {
  auto& device = self.open();
  const uint64_t id = ++self.lastId;
  auto completions = self.completions;
  auto wake = self.wake;
  device.submit(id, std::move(list), options, [completions, wake](Outcome outcome) {
    bool first;
    {
      std::lock_guard lock(completions->mutex);
      first = completions->ended.empty();
      completions->lastEnded = outcome.id;
      completions->ended.push_back(std::move(outcome));
    }
    completions->changed.notify_all();
    // One call of onEnded takes all submissions that have ended by then.
    if (first) wake();
  });
  if (self.pending++ == 0) self.wake.keepAlive(env, true);
  return Napi::Number::New(env, double(id));
}

// What JavaScript gets of an outcome: NativeOutcome of packages/core/src/native.ts.
Napi::Object outcomeObject(Napi::Env env, const Outcome& outcome) {
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
  return object;
}

}  // namespace

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

// submit(device, recording, profile) -> id
Napi::Value submit(const Napi::CallbackInfo& info) {
  auto& self = handle<DeviceHandle>(info[0]);
  const auto list = handle<RecordingHandle>(info[1]).list;
  if (!list) throw Failure("Disposed", "the recording has been disposed", "recording");
  return submitList(info.Env(), self, list, {info[2].ToBoolean(), true});
}

// run(device, words, count, memory handles, profile) -> id: record and submit in one, for a list that runs once
Napi::Value run(const Napi::CallbackInfo& info) {
  auto& self = handle<DeviceHandle>(info[0]);
  return submitList(info.Env(), self, commandList(info), {info[4].ToBoolean(), false});
}

// takeEnded(device) -> the submissions that ended since the last call, in order
Napi::Value takeEnded(const Napi::CallbackInfo& info) {
  const auto env = info.Env();
  auto& self = handle<DeviceHandle>(info[0]);
  self.releases->runAll(env);
  std::vector<Outcome> ended;
  {
    std::lock_guard lock(self.completions->mutex);
    ended.swap(self.completions->ended);
  }
  auto out = Napi::Array::New(env, ended.size());
  uint32_t at = 0;
  for (const auto& outcome : ended) out.Set(at++, outcomeObject(env, outcome));
  if (!ended.empty() && (self.pending -= ended.size()) == 0 && self.device) self.wake.keepAlive(env, false);
  return out;
}

// waitFor(device, id): blocks until that submission has ended
Napi::Value waitFor(const Napi::CallbackInfo& info) {
  auto& self = handle<DeviceHandle>(info[0]);
  const uint64_t id = readSize(info[1], "id");
  if (id > self.lastId) throw Failure("InvalidArgument", "native call: unknown submission");
  auto& completions = *self.completions;
  const auto ended = [&] { return completions.lastEnded.load(std::memory_order_acquire) >= id; };
  if (!spinUntil(ended, kLook)) {
    std::unique_lock lock(completions.mutex);
    completions.changed.wait(lock, ended);
  }
  return info.Env().Undefined();
}

}  // namespace mlxts
