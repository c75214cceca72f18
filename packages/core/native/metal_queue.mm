#include "metal_queue.h"

#include <algorithm>
#include <cstring>

#include "metal_error.h"

namespace mlxts {

namespace {

constexpr NSUInteger kCommandBuffers = 256;  // in flight; beyond that a commit waits
constexpr NSUInteger kAbsentBytes = 256;
constexpr MTLResourceOptions kOptions = MTLResourceStorageModeShared | MTLResourceHazardTrackingModeUntracked;

// A command buffer has ended: its times, and whether it failed.
void record(Flights& flights, Flight& flight, uint32_t tag, id<MTLCommandBuffer> buffer) {
  std::lock_guard lock(flights.mutex);
  const double begin = [buffer GPUStartTime], end = [buffer GPUEndTime];
  flight.begin = flight.begin == 0 ? begin : std::min(flight.begin, begin);
  flight.end = std::max(flight.end, end);
  if (tag < flight.outcome.microseconds.size()) flight.outcome.microseconds[tag] = (end - begin) * 1e6;
  if ([buffer status] != MTLCommandBufferStatusError || !flight.outcome.code.empty()) return;
  NSError* error = [buffer error];
  const auto text = describe(error);
  const auto cause = commandBufferCause([error code], text);
  flights.lost = flights.lost || cause == "deviceLost";
  Flights::fail(flight, cause, text, tag);
}

}  // namespace

void Flights::fail(Flight& flight, const std::string& cause, const std::string& message, uint32_t tag) {
  flight.outcome.code = "CommandBuffer";
  flight.outcome.cause = cause;
  flight.outcome.message = message;
  flight.outcome.tag = tag;
}

void Flights::takeFaults(Flight& flight) {
  if (!flight.faults) return;
  auto* records = static_cast<MlxtsFault*>([flight.faults.get() contents]);
  for (const auto& command : flight.list->commands) {
    if (command.fault == kNoFault || records[command.fault].code == 0 || !flight.outcome.code.empty()) continue;
    flight.outcome.code = "InvalidArgument";
    flight.outcome.cause = "invalidResource";
    flight.outcome.tag = command.tag;
    flight.outcome.fault = records[command.fault];
  }
  std::memset(records, 0, flight.list->faults * sizeof(MlxtsFault));
  spareFaults.push_back(std::move(flight.faults));
}

void Flights::ended(Flight& flight) {
  std::lock_guard lock(mutex);
  --flight.running;
  while (!inOrder.empty() && inOrder.front()->running == 0) {
    const auto first = std::move(inOrder.front());
    inOrder.pop_front();
    first->outcome.milliseconds = (first->end - first->begin) * 1000;
    takeFaults(*first);
    first->list.reset();  // memory of disposed buffers goes before anybody hears of the end
    first->done(std::move(first->outcome));
    first->done = nullptr;
  }
  if (inOrder.empty()) idle.notify_all();
}

// One command buffer being filled: a compute encoder, or a blit encoder for fills, at a time.
class MetalQueue::Pass {
 public:
  Pass(MetalQueue& queue, id<MTLCommandBuffer> buffer) : queue_(queue), buffer_(buffer) {}

  bool dispatch(const Flight& flight, const Command& c, const MetalPipeline& pipeline) {
    const auto& list = *flight.list;
    if (!compute_) {
      compute_ = [buffer_ computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
      begin(compute_);
    }
    if (!compute_) return false;
    if (queue_.traced_) [compute_ pushDebugGroup:toNSString(pipeline.symbol)];
    if (pipeline_ != pipeline.state.get()) [compute_ setComputePipelineState:pipeline.state.get()];
    pipeline_ = pipeline.state.get();
    for (uint32_t i = 0; i < c.bindings; ++i) {
      const auto& binding = list.bindings[c.firstBinding + i];
      const bool absent = binding.memory == kAbsent;
      [compute_ setBuffer:absent ? queue_.absent_.get() : MetalBuffer::of(*list.memories[binding.memory])
                   offset:absent ? 0 : binding.offset
                  atIndex:i];
    }
    // A kernel without parameters has a struct of one unused word.
    const uint32_t none = 0;
    const uint32_t* params = c.paramWords ? list.params.data() + c.firstParam : &none;
    [compute_ setBytes:params length:std::max(1u, c.paramWords) * 4 atIndex:c.bindings];
    if (c.fault != kNoFault)
      [compute_ setBuffer:flight.faults.get() offset:c.fault * sizeof(MlxtsFault) atIndex:c.bindings + 1];
    if (c.scratchBytes) [compute_ setThreadgroupMemoryLength:(c.scratchBytes + 15) / 16 * 16 atIndex:0];
    [compute_ dispatchThreadgroups:MTLSizeMake(c.threadgroups[0], c.threadgroups[1], c.threadgroups[2])
             threadsPerThreadgroup:MTLSizeMake(c.threadsPerThreadgroup[0], c.threadsPerThreadgroup[1],
                                               c.threadsPerThreadgroup[2])];
    if (queue_.traced_) [compute_ popDebugGroup];
    return true;
  }

  void barrier() {
    if (compute_) [compute_ memoryBarrierWithScope:MTLBarrierScopeBuffers];
  }

  bool fill(const CommandList& list, const Command& c) {
    end();
    id<MTLBlitCommandEncoder> blit = [buffer_ blitCommandEncoder];
    if (!blit) return false;
    begin(blit);
    const auto& binding = list.bindings[c.firstBinding];
    // Metal fills whole words; the bytes behind the buffer's last one are unused.
    const NSRange range = NSMakeRange(binding.offset, (binding.bytes + 3) / 4 * 4);
    [blit fillBuffer:MetalBuffer::of(*list.memories[binding.memory]) range:range value:uint8_t(c.fillByte)];
    finish(blit);
    return true;
  }

  void end() {
    if (compute_) finish(compute_);
    compute_ = nil;
    pipeline_ = nil;
  }

 private:
  template <typename Encoder>
  void begin(Encoder encoder) {
    if (queue_.fenced_) [encoder waitForFence:queue_.fence_.get()];
  }
  template <typename Encoder>
  void finish(Encoder encoder) {
    [encoder updateFence:queue_.fence_.get()];
    [encoder endEncoding];
    queue_.fenced_ = true;
  }

  MetalQueue& queue_;
  id<MTLCommandBuffer> buffer_;
  id<MTLComputeCommandEncoder> compute_ = nil;
  id<MTLComputePipelineState> pipeline_ = nil;
};

MetalQueue::MetalQueue(id<MTLDevice> device, bool traced) : device_(device), traced_(traced) {
  queue_ = Owned<id<MTLCommandQueue>>::adopt([device newCommandQueueWithMaxCommandBufferCount:kCommandBuffers]);
  fence_ = Owned<id<MTLFence>>::adopt([device newFence]);
  absent_ = Owned<id<MTLBuffer>>::adopt([device newBufferWithLength:kAbsentBytes options:kOptions]);
  if (!queue_ || !fence_ || !absent_) throw Failure("DeviceNotFound", "Metal gave no command queue");
  [queue_.get() setLabel:@"mlxts"];
}

MetalQueue::~MetalQueue() {
  drain();
  // A handler that is still returning may keep `flights_`, but must keep no Metal object.
  std::lock_guard lock(flights_->mutex);
  flights_->spareFaults.clear();
}

bool MetalQueue::giveFaults(Flight& flight) {
  const NSUInteger bytes = flight.list->faults * sizeof(MlxtsFault);
  if (bytes == 0) return true;
  std::lock_guard lock(flights_->mutex);
  auto& spare = flights_->spareFaults;
  const auto fits = std::find_if(spare.begin(), spare.end(), [&](auto& b) { return [b.get() length] >= bytes; });
  if (fits != spare.end()) {
    flight.faults = std::move(*fits);
    spare.erase(fits);
  } else {
    flight.faults = Owned<id<MTLBuffer>>::adopt([device_ newBufferWithLength:bytes options:kOptions]);
  }
  return bool(flight.faults);
}

// Encodes commands [begin, end) into a command buffer of their own and commits it; false when Metal refuses.
bool MetalQueue::encode(const std::shared_ptr<Flight>& flight, const std::deque<MetalPipeline>& pipelines, size_t begin,
                        size_t end) {
  // Unretained references: the flight keeps everything that is bound.
  id<MTLCommandBuffer> buffer = [queue_.get() commandBufferWithUnretainedReferences];
  if (!buffer) return false;
  if (traced_) [buffer setLabel:toNSString("submission " + std::to_string(flight->outcome.id))];
  const auto& list = *flight->list;
  Pass pass(*this, buffer);
  bool encoded = true;
  for (size_t i = begin; i < end && encoded; ++i) {
    const auto& command = list.commands[i];
    if (command.kind == CommandKind::barrier)
      pass.barrier();
    else if (command.kind == CommandKind::fill)
      encoded = pass.fill(list, command);
    else
      encoded = pass.dispatch(*flight, command, pipelines[command.pipeline]);
  }
  pass.end();
  const uint32_t tag = end - begin == 1 ? list.commands[begin].tag : kUnknownTag;
  // A block copies what it captures; of a reference it would copy only the address.
  const auto flights = flights_;
  const auto kept = flight;
  {
    std::lock_guard lock(flights->mutex);
    ++flight->running;
  }
  [buffer addCompletedHandler:^(id<MTLCommandBuffer> ended) {
    @autoreleasepool {
      record(*flights, *kept, tag, ended);
      flights->ended(*kept);
    }
  }];
  // Also after a refusal: what updates the fence must run.
  [buffer commit];
  return encoded;
}

void MetalQueue::submit(uint64_t id, std::shared_ptr<const CommandList> list,
                        const std::deque<MetalPipeline>& pipelines, SubmitOptions options,
                        std::function<void(Outcome)> done, Residency& residency) {
  auto flight = std::make_shared<Flight>();
  flight->list = std::move(list);
  flight->done = std::move(done);
  flight->outcome.id = id;
  const auto& commands = flight->list->commands;
  if (options.profile) flight->outcome.microseconds.assign(flight->list->tags, 0);
  bool lost;
  {
    std::lock_guard lock(flights_->mutex);
    flights_->inOrder.push_back(flight);
    lost = flights_->lost;
  }
  bool encoded = true;
  if (!lost) {
    residency.commit();
    encoded = giveFaults(*flight);
    // Profiled, each dispatch is a command buffer of its own, with times of its own.
    if (options.profile) {
      for (size_t i = 0; i < commands.size() && encoded; ++i)
        if (commands[i].kind != CommandKind::barrier)
          encoded = pooled([&] { return encode(flight, pipelines, i, i + 1); });
    } else if (encoded) {
      encoded = encode(flight, pipelines, 0, commands.size());
    }
  }
  if (lost || !encoded) {
    std::lock_guard lock(flights_->mutex);
    if (lost)
      Flights::fail(*flight, "deviceLost", "the device has been lost", kUnknownTag);
    else if (flight->outcome.code.empty())
      Flights::fail(*flight, "outOfMemory", "Metal gave no command buffer, encoder or buffer", kUnknownTag);
  }
  flights_->ended(*flight);
}

void MetalQueue::drain() {
  std::unique_lock lock(flights_->mutex);
  flights_->idle.wait(lock, [this] { return flights_->inOrder.empty(); });
}

}  // namespace mlxts
