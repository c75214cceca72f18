// Buffers, libraries, pipelines, residency sets: what a command uses.
#include <Block.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "objects.h"

using namespace metal_framework;

// Labels are readable; a capture shows them.
@implementation SimLabeled
- (NSString*)label {
  return label_;
}
- (void)setLabel:(NSString*)label {
  NSString* old = label_;
  label_ = [label retain];
  [old release];
}
- (void)dealloc {
  [label_ release];
  [super dealloc];
}
@end

@implementation SimBuffer
- (NSUInteger)length {
  return length_;
}
- (NSUInteger)allocatedSize {
  return (length_ + kPage - 1) / kPage * kPage;
}
- (void*)contents {
  return data_;
}
- (void)dealloc {
  if (deallocator_) {
    deallocator_(data_, length_);
    Block_release(deallocator_);
  }
  mustHavePool();
  if (mapped_) munmap(data_, mapped_);
  [super dealloc];
}
@end

@implementation SimFence
- (void)dealloc {
  mustHavePool();
  [super dealloc];
}
@end

@implementation SimLibrary
- (id<MTLFunction>)newFunctionWithName:(NSString*)name {
  const int kernel = metal_sim_find_kernel(engine_, [name UTF8String]);
  if (kernel < 0) return nil;
  SimFunction* function = [[SimFunction alloc] init];
  function->library_ = [self retain];
  function->kernel_ = uint32_t(kernel);
  return function;
}
- (void)dealloc {
  mustHavePool();
  [super dealloc];
}
@end

@implementation SimFunction
- (NSString*)name {
  metal_sim_kernel kernel;
  metal_sim_kernel_at(library_->engine_, kernel_, &kernel);
  return string(kernel.name);
}
- (void)dealloc {
  mustHavePool();
  [library_ release];
  [super dealloc];
}
@end

@implementation SimPipeline
- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return maxThreads_;
}
- (NSUInteger)threadExecutionWidth {
  return 32;
}
- (void)dealloc {
  mustHavePool();
  [library_ release];
  [super dealloc];
}
@end

@implementation MTLCompileOptions
- (BOOL)fastMathEnabled {
  return fast_;
}
- (void)setFastMathEnabled:(BOOL)fast {
  fast_ = fast;
}
- (MTLLanguageVersion)languageVersion {
  return version_;
}
- (void)setLanguageVersion:(MTLLanguageVersion)version {
  version_ = version;
}
@end

@implementation MTLResidencySetDescriptor
- (NSString*)label {
  return label_;
}
- (void)setLabel:(NSString*)label {
  NSString* old = label_;
  label_ = [label retain];
  [old release];
}
- (NSUInteger)initialCapacity {
  return capacity_;
}
- (void)setInitialCapacity:(NSUInteger)capacity {
  capacity_ = capacity;
}
- (void)dealloc {
  [label_ release];
  [super dealloc];
}
@end

// Like Metal's, it retains its allocations until a commit after their removal.
@implementation SimResidencySet
- (uint64_t)allocatedSize {
  std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (id member : members_) bytes += [(id<MTLAllocation>)member allocatedSize];
  return bytes;
}
- (void)addAllocation:(id<MTLAllocation>)allocation {
  std::lock_guard lock(mutex_);
  staged_.push_back(allocation);
}
- (void)removeAllocation:(id<MTLAllocation>)allocation {
  std::lock_guard lock(mutex_);
  const auto found = std::find(staged_.begin(), staged_.end(), (id)allocation);
  must(found != staged_.end(), "an allocation is removed from a residency set that it is not in");
  staged_.erase(found);
}
- (void)commit {
  std::lock_guard lock(mutex_);
  for (id object : staged_) [object retain];
  for (id object : members_) [object release];
  members_ = staged_;
  count(Count::residencyCommits);
}
// What is resident must exist: pages of a no-copy buffer that are gone are a fault of the GPU.
- (void)check {
  std::lock_guard lock(mutex_);
  for (id member : members_) {
    auto* buffer = (SimBuffer*)member;
    must(buffer->mapped_ || msync(buffer->data_, buffer->length_, MS_ASYNC) == 0,
         "memory of a resident buffer has been unmapped");
  }
}
- (void)dealloc {
  mustHavePool();
  for (id object : members_) [object release];
  [super dealloc];
}
@end
