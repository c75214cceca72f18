// Type-tagged handles: a JavaScript object that owns a T and refuses to be used as anything else.
#pragma once
#include <napi.h>

#include <memory>

#include "device.h"

namespace mlxts {

template <typename T>
struct HandleTag;  // one napi_type_tag and one name for each handle type

template <typename T>
Napi::Object makeHandle(Napi::Env env, std::unique_ptr<T> value) {
  auto object = Napi::Object::New(env);
  napi_status status = napi_wrap(
      env, object, value.get(), [](napi_env, void* data, void*) { delete static_cast<T*>(data); }, nullptr, nullptr);
  if (status == napi_ok) {
    value.release();
    status = napi_type_tag_object(env, object, &HandleTag<T>::tag);
  }
  if (status != napi_ok) throw Failure("InvalidArgument", std::string("cannot make a handle of ") + HandleTag<T>::name);
  return object;
}

template <typename T>
T& handle(const Napi::Value& value) {
  bool matches = false;
  void* data = nullptr;
  if (!value.IsObject() || napi_check_object_type_tag(value.Env(), value, &HandleTag<T>::tag, &matches) != napi_ok ||
      !matches || napi_unwrap(value.Env(), value, &data) != napi_ok)
    throw Failure("InvalidArgument", std::string("native call: handle must be a ") + HandleTag<T>::name);
  return *static_cast<T*>(data);
}

}  // namespace mlxts
