// Encoders, with the rules of Metal's validation layer.
#include <algorithm>

#include "objects.h"

using namespace metal_framework;

@implementation SimEncoder
- (void)mustEncode {
  must(!ended_, "a call on an encoder after endEncoding");
  must(owner_->status_ < MTLCommandBufferStatusCommitted, "a call on an encoder after its command buffer's commit");
}
- (Work&)add:(Work::Kind)kind {
  auto& work = pass_->work.emplace_back();
  work.kind = kind;
  for (const auto& group : groups_) work.groups += group + ": ";
  return work;
}
- (void)pushDebugGroup:(NSString*)name {
  [self mustEncode];
  groups_.push_back([name UTF8String]);
}
- (void)popDebugGroup {
  [self mustEncode];
  must(!groups_.empty(), "popDebugGroup without pushDebugGroup");
  groups_.pop_back();
}
- (void)updateFence:(id<MTLFence>)fence {
  [self mustEncode];
  must(fence != nil, "updateFence without a fence");
  pass_->updates.emplace_back((id)fence);
}
- (void)waitForFence:(id<MTLFence>)fence {
  [self mustEncode];
  must(fence != nil, "waitForFence without a fence");
  for (const auto& updated : pass_->updates)
    must(updated.object != (id)fence, "waitForFence after updateFence of the same fence in one encoder");
  must(!worked_, "waitForFence after the encoder's first command");
  pass_->waits.emplace_back((id)fence);
}
- (void)endEncoding {
  must(!ended_, "endEncoding twice");
  must(groups_.empty(), "endEncoding with an open debug group");
  ended_ = true;
}
- (void)dealloc {
  must(ended_, "an encoder is released before endEncoding");
  [super dealloc];
}
@end

@implementation SimComputeEncoder
- (id)init {
  slots_.resize(kSlots);
  threadgroupBytes_.resize(kSlots);
  return self;
}
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  [self mustEncode];
  must(state != nil, "setComputePipelineState without a pipeline");
  pipeline_ = (SimPipeline*)state;
}
- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
  [self mustEncode];
  must(index < kSlots, "setBytes at an index above 30");
  must(bytes && length > 0 && length <= kInlineBytes, "setBytes takes 1 to 4096 bytes");
  const auto* begin = static_cast<const uint8_t*>(bytes);
  slots_[index] = {true, {}, 0, {begin, begin + length}};
}
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  [self mustEncode];
  must(index < kSlots, "setBuffer at an index above 30");
  must(offset % 4 == 0, "setBuffer at an offset that is no multiple of 4");
  must(buffer ? offset < [buffer length] : offset == 0, "setBuffer at an offset past the buffer's end");
  slots_[index] = {true, Borrowed((id)buffer), offset, {}};
}
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
  [self mustEncode];
  must(index < kSlots, "setThreadgroupMemoryLength at an index above 30");
  must(length % 16 == 0, "threadgroup memory that is no multiple of 16 bytes");
  threadgroupBytes_[index] = length;
}
- (void)checkArguments {
  for (const auto& argument : pipeline_->arguments_) {
    const std::string name = std::string("`") + argument.name + "`";
    if (argument.kind == METAL_SIM_THREADGROUP_MEMORY)
      if (argument.index >= kSlots || threadgroupBytes_[argument.index] == 0)
        broken("a dispatch without threadgroup memory for " + name);
    if (argument.kind != METAL_SIM_BUFFER) continue;
    const auto& slot = slots_[std::min<NSUInteger>(argument.index, kSlots - 1)];
    if (!slot.buffer.object && slot.bytes.empty()) broken("a dispatch without a buffer for " + name);
    const NSUInteger length =
        slot.buffer.object ? ((SimBuffer*)slot.buffer.object)->length_ - slot.offset : NSUInteger(slot.bytes.size());
    if (length < argument.type_bytes) broken("a dispatch with too few bytes for " + name);
  }
}
- (void)dispatchThreadgroups:(MTLSize)threadgroups threadsPerThreadgroup:(MTLSize)threads {
  [self mustEncode];
  must(pipeline_ != nil, "a dispatch without a pipeline");
  must(threadgroups.width && threadgroups.height && threadgroups.depth, "a dispatch of no threadgroups");
  must(threads.width && threads.height && threads.depth, "a dispatch of no threads");
  must(threads.width <= kThreads && threads.height <= kThreads && threads.depth <= kThreads &&
           threads.width * threads.height * threads.depth <= pipeline_->maxThreads_,
       "a dispatch of more threads than the pipeline's threadgroups may have");
  NSUInteger total = 0;
  for (const auto bytes : threadgroupBytes_) total += bytes;
  must(total <= metal_sim::max_threadgroup_bytes(), "more threadgroup memory than there is");
  [self checkArguments];
  for (const auto& slot : slots_)
    if (slot.buffer.object) pass_->buffers.push_back(slot.buffer);
  auto& work = [self add:Work::Kind::dispatch];
  work.pipeline = Borrowed(pipeline_);
  work.threadgroups = threadgroups;
  work.threads = threads;
  work.slots = slots_;
  work.threadgroupBytes = threadgroupBytes_;
  // A serial encoder is one with a barrier after each dispatch.
  if (!concurrent_) [self add:Work::Kind::barrier];
  worked_ = true;
  count(Count::dispatches);
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
  [self mustEncode];
  must(scope != 0, "memoryBarrierWithScope of no scope");
  // Kernels here use buffers alone: a barrier for textures orders nothing.
  if (scope & MTLBarrierScopeBuffers) [self add:Work::Kind::barrier];
}
@end

@implementation SimBlitEncoder
- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(uint8_t)value {
  [self mustEncode];
  must(buffer != nil, "fillBuffer without a buffer");
  must(range.length > 0 && range.length <= [buffer length] && range.location <= [buffer length] - range.length,
       "fillBuffer past the buffer's end");
  must(range.location % 4 == 0 && range.length % 4 == 0, "fillBuffer of a range that is no multiple of 4");
  pass_->buffers.emplace_back((id)buffer);
  auto& work = [self add:Work::Kind::fill];
  work.buffer = Borrowed((id)buffer);
  work.range = range;
  work.value = value;
  worked_ = true;
  count(Count::fills);
}
@end
