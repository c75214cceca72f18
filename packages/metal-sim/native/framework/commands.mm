// Queues, command buffers and encoders, with the rules of Metal's validation layer.
#include <Block.h>

#include <algorithm>
#include <chrono>

#include "objects.h"

using namespace metal_framework;

static Work barrier() {
  Work work{};
  work.kind = Work::Kind::barrier;
  return work;
}

@implementation SimEncoder
- (void)mustEncode {
  must(!ended_, "a call on an encoder after endEncoding");
  must(owner_->status_ < MTLCommandBufferStatusCommitted, "a call on an encoder after its command buffer's commit");
}
- (void)pushDebugGroup:(NSString*)name {
  (void)name;
  [self mustEncode];
  ++groups_;
}
- (void)popDebugGroup {
  [self mustEncode];
  must(groups_-- > 0, "popDebugGroup without pushDebugGroup");
}
- (void)updateFence:(id<MTLFence>)fence {
  [self mustEncode];
  must(fence != nil, "updateFence without a fence");
  updated_.emplace_back((id)fence);
  ((SimFence*)fence)->updatedBy_ = number_;
}
// Metal orders the uses of tracked buffers itself.
- (void)use:(SimBuffer*)buffer {
  must(!buffer->untracked_ || buffer->lastEncoder_ == number_ || buffer->lastEncoder_ <= after_,
       "an untracked buffer is used by two encoders that no fence orders");
  buffer->lastEncoder_ = number_;
}
- (void)waitForFence:(id<MTLFence>)fence {
  [self mustEncode];
  must(fence != nil, "waitForFence without a fence");
  for (const auto& updated : updated_)
    must(updated.object != (id)fence, "waitForFence after updateFence of the same fence in one encoder");
  must(!worked_, "waitForFence after the encoder's first command");
  after_ = std::max(after_, ((SimFence*)fence)->updatedBy_);
}
- (void)endEncoding {
  must(!ended_, "endEncoding twice");
  must(groups_ == 0, "endEncoding with an open debug group");
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
    if (!slot.set) broken("a dispatch without a buffer for " + name);
    const NSUInteger length =
        slot.buffer.object ? ((SimBuffer*)slot.buffer.object)->length_ - slot.offset : NSUInteger(slot.bytes.size());
    if (length > 0 && length < argument.type_bytes) broken("a dispatch with too few bytes for " + name);
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
  must(total <= kThreadgroupBytes, "more than 32768 bytes of threadgroup memory");
  [self checkArguments];
  for (const auto& slot : slots_)
    if (slot.buffer.object) [self use:(SimBuffer*)slot.buffer.object];
  Work work{};
  work.kind = Work::Kind::dispatch;
  work.pipeline = Borrowed(pipeline_);
  work.threadgroups = threadgroups;
  work.threads = threads;
  work.slots = slots_;
  work.threadgroupBytes = threadgroupBytes_;
  // A serial encoder is one with a barrier after each dispatch.
  owner_->work_.push_back(std::move(work));
  if (!concurrent_) owner_->work_.push_back(barrier());
  worked_ = true;
  count(Count::dispatches);
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
  [self mustEncode];
  must(scope != 0, "memoryBarrierWithScope of no scope");
  owner_->work_.push_back(barrier());
}
- (void)endEncoding {
  [super endEncoding];
  owner_->work_.push_back(barrier());
}
@end

@implementation SimBlitEncoder
- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(uint8_t)value {
  [self mustEncode];
  must(buffer != nil, "fillBuffer without a buffer");
  must(range.length > 0 && range.length <= [buffer length] && range.location <= [buffer length] - range.length,
       "fillBuffer past the buffer's end");
  must(range.location % 4 == 0 && range.length % 4 == 0, "fillBuffer of a range that is no multiple of 4");
  [self use:(SimBuffer*)buffer];
  Work work{};
  work.kind = Work::Kind::fill;
  work.buffer = Borrowed((id)buffer);
  work.range = range;
  work.value = value;
  owner_->work_.push_back(std::move(work));
  worked_ = true;
  count(Count::fills);
}
@end

@implementation SimCommandBuffer
- (MTLCommandBufferStatus)status {
  return status_;
}
- (NSError*)error {
  return ending_.code ? metal_framework::error("MTLCommandBufferErrorDomain", ending_.code, ending_.text) : nil;
}
- (CFTimeInterval)GPUStartTime {
  return begin_;
}
- (CFTimeInterval)GPUEndTime {
  return end_;
}
- (void)open:(SimEncoder*)encoder {
  must(status_ < MTLCommandBufferStatusCommitted, "an encoder is made after commit");
  must(!encoder_ || encoder_->ended_, "an encoder is made while another of the command buffer is open");
  [encoder_ release];
  encoder_ = [encoder retain];
  encoder->owner_ = self;
  encoder->number_ = ++queue_->encoders_;
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type {
  if (fault("no-encoder")) return nil;
  SimComputeEncoder* encoder = [[[SimComputeEncoder alloc] init] autorelease];
  encoder->concurrent_ = type == MTLDispatchTypeConcurrent;
  [self open:encoder];
  return encoder;
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
  if (fault("no-blit")) return nil;
  SimBlitEncoder* encoder = [[[SimBlitEncoder alloc] init] autorelease];
  [self open:encoder];
  return encoder;
}
- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  must(status_ < MTLCommandBufferStatusCommitted, "addCompletedHandler after commit");
  must(block != nil, "addCompletedHandler without a block");
  handlers_.push_back(Block_copy(block));
}
- (void)commit {
  must(status_ < MTLCommandBufferStatusCommitted, "commit twice");
  must(!encoder_ || encoder_->ended_, "commit with an open encoder");
  // Read here, where tests set it: on the thread that commits.
  fault_ = fault("fail").value_or("");
  delay_ = unsigned(atoi(fault("delay").value_or("0").c_str()));
  status_ = MTLCommandBufferStatusCommitted;
  count(Count::commandBuffers);
  auto& gpu = *queue_->gpu_;
  std::lock_guard lock(gpu.mutex);
  gpu.waiting.push_back([self retain]);
  gpu.changed.notify_all();
}
- (void)run {
  if (delay_) std::this_thread::sleep_for(std::chrono::milliseconds(delay_));
  for (id set : queue_->residencySets_) [(SimResidencySet*)set check];
  begin_ = seconds();
  ending_ = fault_.empty() ? execute(work_, queue_->settings_) : requestedEnding(fault_);
  end_ = seconds();
  status_ = ending_.code ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted;
  work_.clear();
  for (auto handler : handlers_) {
    handler(self);
    Block_release(handler);
  }
  handlers_.clear();
}
- (void)dealloc {
  for (auto handler : handlers_) Block_release(handler);
  [encoder_ release];
  {
    auto& gpu = *queue_->gpu_;
    std::lock_guard lock(gpu.mutex);
    --gpu.made;
    gpu.changed.notify_all();
  }
  [queue_ release];
  [super dealloc];
}
@end

void GpuThread::serve() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return stopping || !waiting.empty(); });
    if (waiting.empty()) return;
    SimCommandBuffer* next = waiting.front();
    waiting.pop_front();
    lock.unlock();
    @autoreleasepool {
      [next run];
      [next release];
    }
    lock.lock();
  }
}

@implementation SimQueue
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  if (fault("no-command-buffer")) return nil;
  {
    std::unique_lock lock(gpu_->mutex);
    gpu_->changed.wait(lock, [self] { return gpu_->made < gpu_->most; });
    ++gpu_->made;
  }
  SimCommandBuffer* buffer = [[SimCommandBuffer alloc] init];
  buffer->queue_ = [self retain];
  buffer->status_ = MTLCommandBufferStatusNotEnqueued;
  return [buffer autorelease];
}
- (void)addResidencySet:(id<MTLResidencySet>)set {
  must(set != nil && residencySets_.size() < 32, "addResidencySet without a set, or of a 33rd");
  residencySets_.push_back([(id)set retain]);
}
- (void)dealloc {
  {
    std::lock_guard lock(gpu_->mutex);
    gpu_->stopping = true;
    gpu_->changed.notify_all();
  }
  // The last reference may have been a command buffer's, on the thread itself.
  if (thread_.get_id() == std::this_thread::get_id())
    thread_.detach();
  else
    thread_.join();
  for (id set : residencySets_) [set release];
  [super dealloc];
}
@end
