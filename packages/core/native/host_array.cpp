#include "host_array.h"

#include <dlfcn.h>

#include "device.h"
#include "handle.h"

namespace mlxts {

namespace {

// Attached to an ArrayBuffer that shows a device's memory. The reference is weak: a Loan stays attached when the
// ArrayBuffer is detached, and must not keep the memory then.
struct Loan {
  std::weak_ptr<Memory> memory;
};

// Stands for a std::shared_ptr of Node.js, whose C++ library may differ from the addon's. It is only passed on. Because
// of its destructor it is passed in memory, as a shared_ptr is.
struct StorePointer {
  void* store;
  void* counts;
  ~StorePointer() {}
};

// N-API can keep an ArrayBuffer object, but not the bytes that the object loses when it is detached. A second
// ArrayBuffer over the same bytes, which JavaScript never sees, keeps them. Only V8 can make one: these are its
// functions, which all versions of Node.js from 20 on export. They are looked up by name, so that the addon also loads
// where they are missing. An `ArrayBuffer` of V8 and a napi_value are both the address of a handle.
struct V8 {
  void* (*isolate)() = nullptr;
  StorePointer (*getBackingStore)(napi_value) = nullptr;
  napi_value (*newArrayBuffer)(void* isolate, StorePointer) = nullptr;
  size_t (*storeBytes)(const void*) = nullptr;
  bool (*isDetachable)(napi_value) = nullptr;

  V8() {
    const auto find = [](auto& function, const char* symbol) {
      if (!function)
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_DEFAULT, symbol));
    };
    find(isolate, "_ZN2v87Isolate10GetCurrentEv");
    find(getBackingStore, "_ZN2v811ArrayBuffer15GetBackingStoreEv");
    // The symbol differs between the C++ libraries of GCC and LLVM.
    find(newArrayBuffer, "_ZN2v811ArrayBuffer3NewEPNS_7IsolateESt10shared_ptrINS_12BackingStoreEE");
    find(newArrayBuffer, "_ZN2v811ArrayBuffer3NewEPNS_7IsolateENSt3__110shared_ptrINS_12BackingStoreEEE");
    find(storeBytes, "_ZNK2v812BackingStore10ByteLengthEv");
    find(isDetachable, "_ZNK2v811ArrayBuffer12IsDetachableEv");
  }
  bool complete() const { return isolate && getBackingStore && newArrayBuffer && storeBytes && isDetachable; }
};

const V8& v8() {
  static const V8 functions;
  return functions;
}

}  // namespace

template <>
struct HandleTag<Loan> {
  static constexpr napi_type_tag tag{kHandleTags, 5};
  static constexpr const char* name = "Loan";
};

HostArray hostArray(const Napi::Value& value) {
  napi_typedarray_type type;
  size_t length, offset;
  void* data;
  napi_value buffer;
  if (!value.IsTypedArray() ||
      napi_get_typedarray_info(value.Env(), value, &type, &length, &data, &buffer, &offset) != napi_ok)
    throw Failure("InvalidArgument", "native call: data must be a typed array");
  return {static_cast<uint8_t*>(data), value.As<Napi::TypedArray>().ByteLength(), Napi::Value(value.Env(), buffer)};
}

Napi::Value lend(Napi::Env env, const std::shared_ptr<Memory>& memory) {
  auto kept = std::make_unique<std::shared_ptr<Memory>>(memory);
  auto buffer = Napi::ArrayBuffer::New(
      env, memory->data(), memory->bytes(), [](Napi::BasicEnv, void*, std::shared_ptr<Memory>* kept) { delete kept; },
      kept.get());
  kept.release();
  tag(buffer, std::make_unique<Loan>(Loan{memory}));
  return buffer;
}

Hold hold(const HostArray& array) {
  Hold hold{nullptr, array.buffer};
  if (!array.buffer.IsArrayBuffer()) return hold;
  if (const auto* loan = tagged<Loan>(array.buffer)) hold.owner = loan->memory.lock();
  hold.lent = bool(hold.owner);
  if (hold.lent) return hold;
  const auto refuse = [] {
    throw Failure("InvalidArgument", "native call: this runtime cannot hold an ArrayBuffer", "ArrayBuffer");
  };
  if (!v8().complete()) refuse();
  const StorePointer store = v8().getBackingStore(array.buffer);
  hold.keeper = v8().newArrayBuffer(v8().isolate(), store);
  if (v8().storeBytes(store.store) < array.buffer.As<Napi::ArrayBuffer>().ByteLength()) refuse();
  hold.detachable = v8().isDetachable(array.buffer);
  return hold;
}

}  // namespace mlxts
