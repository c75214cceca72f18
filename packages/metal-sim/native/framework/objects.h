// The simulated Metal objects.
#pragma once
#import <Metal/Metal.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../engine.h"
#include "simulation.h"

namespace metal_framework {

constexpr NSUInteger kSlots = 31, kInlineBytes = 4096, kThreadgroupBytes = 32768, kThreads = 1024, kPage = 16384;

// An object that a command uses without retaining it.
struct Borrowed {
  id object = nil;
  uint64_t serial = 0;
  Borrowed() = default;
  explicit Borrowed(id of) : object(of), serial(of ? serialOf(of) : 0) {}
  void check(const char* what) const;
};

struct Slot {
  bool set = false;  // also when set to nil
  Borrowed buffer;
  NSUInteger offset = 0;
  std::vector<uint8_t> bytes;  // of setBytes
};

struct Work {
  enum class Kind { dispatch, barrier, fill } kind;
  Borrowed pipeline, buffer;
  MTLSize threadgroups{}, threads{};
  std::vector<Slot> slots;
  std::vector<NSUInteger> threadgroupBytes;
  NSRange range{};
  uint8_t value = 0;
};

// How a command buffer ended: code 0 is well.
struct Ending {
  NSInteger code = 0;
  std::string text;
};
// Runs the work of one command buffer on the simulated GPU.
Ending execute(const std::vector<Work>& work, const Settings& settings);
// The ending that MLXTS_METAL_SIM_FAULT asks for.
Ending requestedEnding(const std::string& name);

// A library from text, by the metal-sim command, kept for the process's life; null and a compiler's log.
metal_sim_library* openLibrary(const std::string& text, uint32_t build, std::string& log);

}  // namespace metal_framework

@interface SimLabelled : NSObject {
 @public
  NSString* label_;
}
@property(nullable, copy, atomic) NSString* label;
@end

@interface SimBuffer : SimLabelled <MTLBuffer> {
 @public
  void* data_;
  NSUInteger length_;
  void (^deallocator_)(void*, NSUInteger);
  bool owned_, untracked_;
  uint64_t lastEncoder_;  // the last that used it
}
@end

@interface SimFence : NSObject <MTLFence> {
 @public
  uint64_t updatedBy_;
}
@end

@interface SimLibrary : SimLabelled <MTLLibrary> {
 @public
  metal_sim_library* engine_;
}
@end

@interface SimFunction : NSObject <MTLFunction> {
 @public
  SimLibrary* library_;
  uint32_t kernel_;
}
@end

@interface SimPipeline : NSObject <MTLComputePipelineState> {
 @public
  SimLibrary* library_;
  uint32_t kernel_;
  NSUInteger maxThreads_;
  std::vector<metal_sim_argument> arguments_;
}
@end

@interface SimResidencySet : NSObject <MTLResidencySet> {
 @public
  std::mutex mutex_;
  std::vector<id> staged_, members_;
}
- (void)check;
@end

@class SimCommandBuffer;

// Shared by the encoders of a command buffer and the thread that runs it.
@interface SimEncoder : SimLabelled <MTLCommandEncoder> {
 @public
  SimCommandBuffer* owner_;  // outlives its encoder's use
  bool ended_, worked_;
  int groups_;
  uint64_t number_, after_;  // in the queue's order; the last encoder that a fence puts before this one
  std::vector<metal_framework::Borrowed> updated_;
}
- (void)mustEncode;
- (void)use:(SimBuffer*)buffer;
- (void)updateFence:(id<MTLFence>)fence;
- (void)waitForFence:(id<MTLFence>)fence;
@end

@interface SimComputeEncoder : SimEncoder <MTLComputeCommandEncoder> {
 @public
  bool concurrent_;
  SimPipeline* pipeline_;
  std::vector<metal_framework::Slot> slots_;
  std::vector<NSUInteger> threadgroupBytes_;
}
@end

@interface SimBlitEncoder : SimEncoder <MTLBlitCommandEncoder>
@end

@class SimQueue;

@interface SimCommandBuffer : SimLabelled <MTLCommandBuffer> {
 @public
  SimQueue* queue_;
  SimEncoder* encoder_;
  std::vector<metal_framework::Work> work_;
  std::vector<MTLCommandBufferHandler> handlers_;
  std::atomic<MTLCommandBufferStatus> status_;
  double begin_, end_;
  metal_framework::Ending ending_;
  std::string fault_;
  unsigned delay_;
}
- (void)run;
@end

namespace metal_framework {

// Command buffers in the order of their commits, and the thread that runs them.
struct GpuThread {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<SimCommandBuffer*> waiting;
  NSUInteger made = 0, most = 0;  // command buffers that have not ended
  bool stopping = false;
  void serve();
};

}  // namespace metal_framework

@interface SimQueue : SimLabelled <MTLCommandQueue> {
 @public
  std::shared_ptr<metal_framework::GpuThread> gpu_;
  std::thread thread_;
  metal_framework::Settings settings_;
  std::vector<id> residencySets_;
  uint64_t encoders_;
}
@end
