#include "metal_memory.h"

namespace mlxts {

Residency::Residency(id<MTLDevice> device, id<MTLCommandQueue> queue) {
  if (![device respondsToSelector:@selector(newResidencySetWithDescriptor:error:)]) return;
  // By name: a reference to the class would keep the addon from loading on macOS 14.
  auto descriptor =
      Owned<MTLResidencySetDescriptor*>::adopt([[NSClassFromString(@"MTLResidencySetDescriptor") alloc] init]);
  [descriptor.get() setLabel:@"mlxts"];
  NSError* error = nil;
  set_ = Owned<id<MTLResidencySet>>::adopt([device newResidencySetWithDescriptor:descriptor.get() error:&error]);
  if (!set_) return;
  limit_ = [device recommendedMaxWorkingSetSize];
  [queue addResidencySet:set_.get()];
}

bool Residency::add(id<MTLBuffer> buffer) {
  std::lock_guard lock(mutex_);
  if (!set_ || bytes_ + [buffer length] > limit_) return false;
  [set_.get() addAllocation:buffer];
  bytes_ += [buffer length];
  staged_ = true;
  return true;
}

void Residency::remove(id<MTLBuffer> buffer, bool now) {
  std::lock_guard lock(mutex_);
  [set_.get() removeAllocation:buffer];
  bytes_ -= [buffer length];
  if (now) [set_.get() commit];
  staged_ = !now;
}

void Residency::commit() {
  std::lock_guard lock(mutex_);
  if (staged_) [set_.get() commit];
  staged_ = false;
}

MetalBuffer::MetalBuffer(Owned<id<MTLBuffer>> buffer, std::shared_ptr<Residency> residency, bool foreign)
    : buffer_(std::move(buffer)), residency_(std::move(residency)), foreign_(foreign) {
  resident_ = residency_->add(buffer_.get());
}

MetalBuffer::~MetalBuffer() {
  @autoreleasepool {
    if (resident_) residency_->remove(buffer_.get(), foreign_);
    buffer_ = {};
    residency_.reset();  // the device may have gone before
  }
}

}  // namespace mlxts
