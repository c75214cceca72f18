// Arrays of JavaScript whose bytes a device uses, and arrays over a device's memory.
#pragma once
#include <napi.h>

#include <memory>

#include "memory.h"

namespace mlxts {

// The bytes of a typed array, and the ArrayBuffer or SharedArrayBuffer that they lie in.
struct HostArray {
  uint8_t* data;
  size_t bytes;
  Napi::Value buffer;
};

HostArray hostArray(const Napi::Value& typedArray);

// An ArrayBuffer over the memory itself; the memory lives at least as long.
Napi::Value lend(Napi::Env env, const std::shared_ptr<Memory>& memory);

// What keeps an array's bytes allocated while a device uses them.
struct Hold {
  // The memory that the array shows, if `lend` made the array.
  std::shared_ptr<Memory> owner;
  // An object that keeps the bytes also when JavaScript detaches the array's ArrayBuffer. A SharedArrayBuffer cannot be
  // detached, and keeps its bytes itself.
  napi_value keeper;
  // Whether `lend` made the array.
  bool lent = false;
  // Whether JavaScript can detach the ArrayBuffer.
  bool detachable = false;
};

// Failure code InvalidArgument, with the detail "ArrayBuffer", when this runtime offers no way to hold an ArrayBuffer.
Hold hold(const HostArray& array);

}  // namespace mlxts
