// Shared by the Objective-C++ files: owned references, autorelease pools that exceptions pass safely, strings.
// Built with -fno-objc-arc, on macOS and over the simulated frameworks of packages/metal-sim.
#pragma once
#import <Foundation/Foundation.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace mlxts {

// One reference to an object, released by the destructor.
template <typename T>
class Owned {
 public:
  Owned() = default;
  // For what new, alloc, copy and Create return.
  static Owned adopt(T object) {
    Owned owned;
    owned.object_ = object;
    return owned;
  }
  // For everything else.
  static Owned share(T object) { return adopt([object retain]); }
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nil)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Owned(const Owned&) = delete;
  ~Owned() { [object_ release]; }
  T get() const { return object_; }
  explicit operator bool() const { return object_ != nil; }

 private:
  T object_ = nil;
};

// Runs `body` in an autorelease pool. An exception of `body` is thrown again after the pool has been drained.
template <typename Body>
auto pooled(Body&& body) -> decltype(body()) {
  std::exception_ptr thrown;
  if constexpr (__is_same(decltype(body()), void)) {
    @autoreleasepool {
      try {
        body();
      } catch (...) {
        thrown = std::current_exception();
      }
    }
    if (thrown) std::rethrow_exception(thrown);
  } else {
    std::optional<decltype(body())> result;
    @autoreleasepool {
      try {
        result.emplace(body());
      } catch (...) {
        thrown = std::current_exception();
      }
    }
    if (thrown) std::rethrow_exception(thrown);
    return std::move(*result);
  }
}

inline NSString* toNSString(const std::string& text) { return [NSString stringWithUTF8String:text.c_str()]; }

inline std::string describe(NSError* error) {
  const char* text = [[error localizedDescription] UTF8String];
  return text ? text : "no reason given";
}

}  // namespace mlxts
