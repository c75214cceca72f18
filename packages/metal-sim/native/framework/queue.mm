// Command buffers and queues: what is committed, and when the simulated GPU runs it.
#include <Block.h>

#include "objects.h"

using namespace metal_framework;
using std::chrono::milliseconds;

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
  encoder->pass_ = std::make_shared<Pass>();
  passes_.push_back(encoder->pass_);
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
  status_ = MTLCommandBufferStatusCommitted;
  count(Count::commandBuffers);
  auto& gpu = *queue_->gpu_;
  std::unique_lock lock(gpu.mutex);
  const uint64_t number = ++gpu.committed;
  // Faults are read here, where tests set them: on the thread that commits.
  if (const auto failure = fault("fail", number)) ending_ = requestedEnding(*failure);
  const auto earliest = std::chrono::steady_clock::now() + milliseconds(faultNumber("delay", number));
  slow_ = faultNumber("slow", number);
  late_ = faultNumber("late", number);
  const auto completes = fault("completes", number).value_or("");
  must(completes.empty() || completes == "inside" || completes == "before", "`completes` is `inside` or `before`");
  handlesInCommit_ = completes == "inside";
  if (passes_.empty()) passes_.push_back(std::make_shared<Pass>());
  left_ = passes_.size();
  for (const auto& pass : passes_) {
    pass->owner = self;
    pass->earliest = earliest;
    pass->order();
    gpu.waiting.push_back(pass);
  }
  passes_.clear();
  [self retain];  // until its end
  gpu.changed.notify_all();
  if (completes.empty()) return;
  const auto status = handlesInCommit_ ? MTLCommandBufferStatusCompleted : MTLCommandBufferStatus(~0ul);
  gpu.changed.wait(lock, [&] { return handled_ || status_ >= status; });
  lock.unlock();
  if (handlesInCommit_) [self handle];
}
- (void)run:(Pass&)pass {
  if (begin_ == 0) {
    uint64_t resident = 0;
    for (SimResidencySet* set : queue_->residencySets_) {
      [set check];
      resident += [set allocatedSize];
    }
    countResident(resident);
    begin_ = seconds();
    std::this_thread::sleep_for(milliseconds(slow_));
  }
  if (ending_.code == 0) ending_ = execute(pass.work, queue_->gpu_->settings);
  NSString* label = [self label];
  capture(queue_->device_, std::string([[queue_ label] UTF8String] ?: "?") + ": " + ([label UTF8String] ?: "?"));
  for (const auto& work : pass.work) {
    if (work.kind == Work::Kind::fill) capture(queue_->device_, "  " + work.groups + "fill");
    if (work.kind != Work::Kind::dispatch) continue;
    auto* pipeline = (SimPipeline*)work.pipeline.object;
    capture(queue_->device_, "  " + work.groups + ([[pipeline->library_ label] UTF8String] ?: "?"));
  }
}
- (void)handle {
  if (late_) std::this_thread::sleep_for(milliseconds(late_));
  for (auto handler : handlers_) {
    handler(self);
    Block_release(handler);
  }
  handlers_.clear();
  {
    std::lock_guard lock(queue_->gpu_->mutex);
    handled_ = true;
    queue_->gpu_->changed.notify_all();
  }
  @autoreleasepool {
    [self release];
  }
}
// Nobody has made a pool where handlers run.
- (void)end {
  end_ = seconds();
  {
    std::lock_guard lock(queue_->gpu_->mutex);
    status_ = ending_.code ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted;
    queue_->gpu_->changed.notify_all();
    if (handlesInCommit_) return;
  }
  if (late_)
    std::thread([self] { [self handle]; }).detach();
  else
    [self handle];
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

void Before::add(uint64_t number) {
  if (number > all) some.insert(number);
  while (some.erase(all + 1)) ++all;
}

void Before::add(const Before& other) {
  all = std::max(all, other.all);
  std::erase_if(some, [&](uint64_t number) { return number <= all; });
  for (const uint64_t number : other.some) add(number);
  add(all);
}

void Pass::order() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  SimQueue* queue = owner->queue_;
  number = ++queue->passes_;
  const auto follow = [&](const std::shared_ptr<Pass>& pass) {
    if (!pass || pass.get() == this) return;
    if (!pass->done) after.push_back(pass);
    if (pass->queue != queue) return;
    before.add(pass->before);
    before.add(pass->number);
  };
  this->queue = queue;
  for (const auto& fence : waits) {
    fence.check("a fence");
    follow(((SimFence*)fence.object)->last_);
  }
  std::shared_ptr<Pass> self;
  for (const auto& pass : owner->passes_)
    if (pass.get() == this) self = pass;
  for (const auto& borrowed : buffers) {
    borrowed.check("a buffer");
    auto* buffer = (SimBuffer*)borrowed.object;
    const auto& last = buffer->last_;
    // Metal orders the uses of tracked buffers itself.
    if (!buffer->untracked_)
      follow(last);
    else if (last && last != self)
      must(last->queue == queue ? before.has(last->number) : bool(last->done),
           "an untracked buffer is used by two encoders that no fence orders");
    buffer->last_ = self;
  }
  for (const auto& fence : updates) ((SimFence*)fence.object)->last_ = self;
}

bool Pass::ready() {
  std::erase_if(after, [](const auto& pass) { return bool(pass->done); });
  return after.empty() && std::chrono::steady_clock::now() >= earliest;
}

// The first that may run, the last, or any.
std::shared_ptr<Pass> GpuThread::next() {
  std::vector<size_t> ready;
  for (size_t i = 0; i < waiting.size() && (ready.empty() || settings.schedule != METAL_SIM_FORWARD); ++i)
    if (waiting[i]->ready()) ready.push_back(i);
  if (ready.empty()) return nullptr;
  const size_t any = settings.schedule == METAL_SIM_RANDOM ? random() % ready.size() : ready.size() - 1;
  const auto at = waiting.begin() + long(ready[any]);
  const auto pass = *at;
  waiting.erase(at);
  return pass;
}

void GpuThread::serve() {
  std::unique_lock lock(mutex);
  for (;;) {
    const auto pass = next();
    if (!pass) {
      if (stopping && waiting.empty()) return;
      if (waiting.empty())
        changed.wait(lock);
      else
        changed.wait_for(lock, milliseconds(1));
      continue;
    }
    lock.unlock();
    SimCommandBuffer* owner = pass->owner;
    @autoreleasepool {
      [owner run:*pass];
    }
    lock.lock();
    pass->work.clear();
    pass->done = true;
    const bool last = --owner->left_ == 0;
    lock.unlock();
    if (last) [owner end];
    lock.lock();
  }
}

@implementation SimQueue
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  {
    std::unique_lock lock(gpu_->mutex);
    if (fault("no-command-buffer", gpu_->committed + 1)) return nil;
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
  mustHavePool();
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
