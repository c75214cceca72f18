// Buffers that the GPU reaches, and the residency set that keeps them there.
#pragma once
#import <Metal/Metal.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "memory.h"
#include "metal_support.h"

namespace mlxts {

// Metal maps whole pages of this size.
inline constexpr uint64_t kMetalPage = 16384;

// All buffers of a device in one residency set, where the system has them (macOS 15): changes are staged, and committed
// once for each submission. Without one, or past the working set that the system recommends, binding a buffer is
// enough.
class Residency {
 public:
  Residency(id<MTLDevice> device, id<MTLCommandQueue> queue);
  // Whether the set has taken it.
  bool add(id<MTLBuffer> buffer);
  // `now`: the pages go when this returns, the set must not hold on to them.
  void remove(id<MTLBuffer> buffer, bool now);
  void commit();

 private:
  std::mutex mutex_;
  Owned<id<MTLResidencySet>> set_;
  uint64_t bytes_ = 0, limit_ = 0;
  bool staged_ = false;
};

// What Memory::attachment of a Metal device points to.
class MetalBuffer {
 public:
  // `foreign`: over pages that somebody else frees.
  MetalBuffer(Owned<id<MTLBuffer>> buffer, std::shared_ptr<Residency> residency, bool foreign);
  ~MetalBuffer();
  MetalBuffer(const MetalBuffer&) = delete;
  static id<MTLBuffer> of(const Memory& memory) { return static_cast<MetalBuffer*>(memory.attachment.get())->get(); }
  id<MTLBuffer> get() const { return buffer_.get(); }

 private:
  Owned<id<MTLBuffer>> buffer_;
  std::shared_ptr<Residency> residency_;
  bool foreign_, resident_;
};

}  // namespace mlxts
