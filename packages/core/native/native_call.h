// The native functions that JavaScript calls (packages/core/src/native.ts declares them), and how they read arguments.
#pragma once
#include <napi.h>

#include <cstdint>
#include <memory>
#include <string>

namespace mlxts {

// An integer from 0 to 2^53 - 1. `what` names the argument in errors.
uint64_t readSize(const Napi::Value& value, const char* what);
std::string readText(const Napi::Value& value, const char* what);

struct DeviceHandle;
class Memory;

// `external`: bytes that the garbage collector is to know of.
Napi::Value memoryHandle(Napi::Env env, const DeviceHandle& device, std::shared_ptr<Memory> memory,
                         uint64_t external = 0);

// What a thread-safe function runs on the JavaScript thread.
void callFromThread(Napi::Env env, Napi::Function function, void*, void*);

// addon_memory.cpp
Napi::Value allocate(const Napi::CallbackInfo& info);
Napi::Value wrapMemory(const Napi::CallbackInfo& info);
Napi::Value mapFile(const Napi::CallbackInfo& info);
Napi::Value memoryAddress(const Napi::CallbackInfo& info);
Napi::Value readMemory(const Napi::CallbackInfo& info);
Napi::Value writeMemory(const Napi::CallbackInfo& info);
Napi::Value borrowMemory(const Napi::CallbackInfo& info);
Napi::Value detach(const Napi::CallbackInfo& info);
Napi::Value freeBytes(const Napi::CallbackInfo& info);
Napi::Value explainTruncatedFiles(const Napi::CallbackInfo& info);
Napi::Value releaseMemory(const Napi::CallbackInfo& info);

// addon_loads.cpp
Napi::Value loadFile(const Napi::CallbackInfo& info);
Napi::Value loadState(const Napi::CallbackInfo& info);
Napi::Value stopLoad(const Napi::CallbackInfo& info);

// addon_submissions.cpp
Napi::Value record(const Napi::CallbackInfo& info);
Napi::Value releaseRecording(const Napi::CallbackInfo& info);
Napi::Value submit(const Napi::CallbackInfo& info);
Napi::Value run(const Napi::CallbackInfo& info);
Napi::Value takeEnded(const Napi::CallbackInfo& info);
Napi::Value waitFor(const Napi::CallbackInfo& info);

}  // namespace mlxts
