// The simulated Metal objects.
#pragma once
#import <Metal/Metal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../engine.h"
#include "../threadgroup_bytes.h"
#include "simulation.h"

@class SimCommandBuffer, SimQueue;

namespace metal_framework {

constexpr NSUInteger kSlots = 31, kInlineBytes = 4096, kThreads = 1024, kPage = 16384;

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
  std::string groups;  // the debug groups that are open
  Borrowed pipeline, buffer;
  MTLSize threadgroups{}, threads{};
  std::vector<Slot> slots;
  std::vector<NSUInteger> threadgroupBytes;
  NSRange range{};
  uint8_t value = 0;
};

// Passes that are ordered before another: all up to a number, and single ones above it.
struct Before {
  uint64_t all = 0;
  std::set<uint64_t> some;
  void add(uint64_t number);
  void add(const Before& other);
  bool has(uint64_t number) const { return number <= all || some.contains(number); }
};

// What one encoder has recorded. Only what `after` names comes before it: a GPU starts all other passes when it likes.
struct Pass {
  SimCommandBuffer* owner = nullptr;  // outlives it
  std::vector<Work> work;
  std::vector<Borrowed> waits, updates, buffers;
  id queue = nil;
  uint64_t number = 0;  // in its queue, from 1, in the order of commits
  Before before;
  std::vector<std::shared_ptr<Pass>> after;
  std::chrono::steady_clock::time_point earliest;
  std::atomic<bool> done = false;
  // At its commit: after the last passes that updated its fences, and the last uses of buffers that Metal tracks.
  void order();
  bool ready();
};

// How a command buffer ended: code 0 is well.
struct Ending {
  NSInteger code = 0;
  std::string text;
};
// Runs the work of one pass on the simulated GPU.
Ending execute(const std::vector<Work>& work, const Settings& settings);
// The ending that MLXTS_METAL_SIM_FAULT asks for.
Ending requestedEnding(const std::string& name);
// A line of the capture that is running, if one is of this device.
void capture(id device, const std::string& line);

// A library from text, by the metal-sim command, kept for the process's life; null and a compiler's log.
metal_sim_library* openLibrary(const std::string& text, uint32_t build, std::string& log);

}  // namespace metal_framework

@interface SimLabeled : NSObject {
 @public
  NSString* label_;
}
@property(nullable, copy, atomic) NSString* label;
@end

@interface SimBuffer : SimLabeled <MTLBuffer> {
 @public
  void* data_;
  NSUInteger length_;
  void (^deallocator_)(void*, NSUInteger);
  size_t mapped_;  // bytes of its own pages; 0: the pages are somebody else's
  bool untracked_;
  std::shared_ptr<metal_framework::Pass> last_;  // that uses it
}
@end

@interface SimFence : NSObject <MTLFence> {
 @public
  std::shared_ptr<metal_framework::Pass> last_;  // that updates it
}
@end

@interface SimLibrary : SimLabeled <MTLLibrary> {
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

@interface SimEncoder : SimLabeled <MTLCommandEncoder> {
 @public
  SimCommandBuffer* owner_;  // outlives its encoder's use
  bool ended_, worked_;
  std::vector<std::string> groups_;
  std::shared_ptr<metal_framework::Pass> pass_;
}
- (void)mustEncode;
- (metal_framework::Work&)add:(metal_framework::Work::Kind)kind;
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

@interface SimCommandBuffer : SimLabeled <MTLCommandBuffer> {
 @public
  SimQueue* queue_;
  SimEncoder* encoder_;
  std::vector<std::shared_ptr<metal_framework::Pass>> passes_;
  size_t left_;  // passes that have not been run
  std::vector<MTLCommandBufferHandler> handlers_;
  std::atomic<MTLCommandBufferStatus> status_;
  double begin_, end_;
  metal_framework::Ending ending_;
  unsigned slow_, late_;  // milliseconds
  bool handled_, handlesInCommit_;
}
- (void)run:(metal_framework::Pass&)pass;
- (void)end;
@end

namespace metal_framework {

// Passes in the order of their commits, and the thread that runs them, in the order of the schedule.
struct GpuThread {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Pass>> waiting;
  NSUInteger made = 0, most = 0;  // command buffers that have not ended
  uint64_t committed = 0;
  bool stopping = false;
  Settings settings;
  std::mt19937_64 random;
  void serve();

 private:
  std::shared_ptr<Pass> next();
};

}  // namespace metal_framework

@interface SimQueue : SimLabeled <MTLCommandQueue> {
 @public
  std::shared_ptr<metal_framework::GpuThread> gpu_;
  std::thread thread_;
  id device_;  // outlives its queue's use
  std::vector<id> residencySets_;
  uint64_t passes_;
}
@end
