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

// An ArrayBuffer over the memory itself, which lives at least as long.
Napi::Value lend(Napi::Env env, const std::shared_ptr<Memory>& memory);

// How an array's bytes stay allocated while a device uses them.
struct Hold {
  // The memory that was lent.
  std::shared_ptr<Memory> owner;
  // What must live meanwhile, whatever becomes of the JavaScript object. A SharedArrayBuffer cannot be detached: it
  // keeps its bytes itself.
  napi_value keeper;
  // The array shows memory that `lend` has lent.
  bool lent = false;
  // JavaScript can detach the ArrayBuffer.
  bool detachable = false;
};

// Failure code InvalidArgument, with the detail "ArrayBuffer", when this runtime offers no way to hold an ArrayBuffer.
Hold hold(const HostArray& array);

}  // namespace mlxts
