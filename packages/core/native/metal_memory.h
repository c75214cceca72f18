// Buffers that the GPU uses, and the residency set that keeps their pages in memory.
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

// One residency set with all buffers of a device, where the system has such sets (macOS 15). Changes are staged, and
// committed once for each submission. Buffers outside a set, without macOS 15 or past the working set that the system
// recommends, become resident when they are bound.
class Residency {
 public:
  Residency(id<MTLDevice> device, id<MTLCommandQueue> queue);
  // Returns whether the set has the buffer now.
  bool add(id<MTLBuffer> buffer);
  // `now`: the caller frees the pages after this returns, so the set must be changed at once.
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
  // `foreign`: over pages that others free.
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
