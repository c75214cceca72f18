// Breaks one of Metal's rules, named by the argument, and goes on as if nothing were: the simulation must end the
// process. Without an argument it lists the names; `none` keeps all rules.
#import <Metal/Metal.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>

namespace {

const char* kSource = R"(#include <metal_stdlib>
using namespace metal;
struct Params { uint n; float k; };
kernel void scale(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                  constant Params& p [[buffer(2)]], threadgroup float* tile [[threadgroup(0)]],
                  uint i [[thread_position_in_grid]], uint lane [[thread_index_in_threadgroup]]) {
  tile[lane] = i < p.n ? x[i] : 0;
  if (i < p.n) y[i] = p.k * tile[lane];
}
)";

struct Params {
  uint32_t n;
  float k;
};

// A device with a queue, a command buffer and an open compute encoder.
struct Bench {
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  id<MTLCommandQueue> queue = [device newCommandQueueWithMaxCommandBufferCount:4];
  id<MTLBuffer> x = [device newBufferWithLength:4096 options:MTLResourceStorageModeShared];
  id<MTLBuffer> y = [device newBufferWithLength:4096 options:MTLResourceStorageModeShared];
  id<MTLFence> fence = [device newFence];
  id<MTLComputePipelineState> pipeline = nil;
  id<MTLCommandBuffer> buffer = [queue commandBufferWithUnretainedReferences];
  id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];

  void usePipeline() {
    MTLCompileOptions* options = [[MTLCompileOptions alloc] init];
    [options setLanguageVersion:MTLLanguageVersion3_1];
    NSError* error = nil;
    id<MTLLibrary> library = [device newLibraryWithSource:[NSString stringWithUTF8String:kSource]
                                                  options:options
                                                    error:&error];
    if (!library) {
      fprintf(stderr, "%s\n", [[error localizedDescription] UTF8String]);
      exit(3);
    }
    id<MTLFunction> function = [library newFunctionWithName:@"scale"];
    pipeline = [device newComputePipelineStateWithFunction:function error:&error];
    [function release];
    [library release];
    [options release];
    [encoder setComputePipelineState:pipeline];
  }
  void bind() {
    usePipeline();
    [encoder setBuffer:x offset:0 atIndex:0];
    [encoder setBuffer:y offset:0 atIndex:1];
    const Params params{1000, 2};
    [encoder setBytes:&params length:sizeof params atIndex:2];
    [encoder setThreadgroupMemoryLength:1024 atIndex:0];
  }
  void dispatch(NSUInteger threads = 256) {
    [encoder dispatchThreadgroups:MTLSizeMake(4, 1, 1) threadsPerThreadgroup:MTLSizeMake(threads, 1, 1)];
  }
  // Fills of an untracked buffer, each by a pass of its own: whether it waits for the fence and updates it, and whether
  // it fills another buffer.
  void fills(std::initializer_list<std::set<std::string>> passes) {
    [encoder endEncoding];
    const MTLResourceOptions options = MTLResourceStorageModeShared | MTLResourceHazardTrackingModeUntracked;
    id<MTLBuffer> untracked = [device newBufferWithLength:64 options:options];
    id<MTLBuffer> other = [device newBufferWithLength:64 options:options];
    for (const auto& pass : passes) {
      id<MTLBlitCommandEncoder> blit = [buffer blitCommandEncoder];
      if (pass.contains("waits")) [blit waitForFence:fence];
      [blit fillBuffer:pass.contains("other") ? other : untracked range:NSMakeRange(0, 64) value:1];
      if (pass.contains("updates")) [blit updateFence:fence];
      [blit endEncoding];
    }
    [buffer commit];
  }
  void finish() {
    [encoder endEncoding];
    [buffer commit];
  }
};

char bytes[5000];

using Case = void (*)(Bench&);
const std::map<std::string, Case> kCases = {
    {"encode-after-end", [](Bench& b) { [b.encoder endEncoding], [b.encoder setBuffer:b.x offset:0 atIndex:0]; }},
    {"encode-after-commit",
     [](Bench& b) { b.finish(), [b.buffer computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial]; }},
    {"end-twice", [](Bench& b) { [b.encoder endEncoding], [b.encoder endEncoding]; }},
    {"commit-open", [](Bench& b) { [b.buffer commit]; }},
    {"commit-twice", [](Bench& b) { b.finish(), [b.buffer commit]; }},
    {"two-encoders", [](Bench& b) { [b.buffer blitCommandEncoder]; }},
    {"handler-after-commit",
     [](Bench& b) {
       b.finish(), [b.buffer addCompletedHandler:^(id<MTLCommandBuffer>){
                   }];
     }},
    {"bytes-too-long", [](Bench& b) { [b.encoder setBytes:bytes length:4097 atIndex:0]; }},
    {"bytes-empty", [](Bench& b) { [b.encoder setBytes:bytes length:0 atIndex:0]; }},
    {"buffer-index", [](Bench& b) { [b.encoder setBuffer:b.x offset:0 atIndex:31]; }},
    {"bytes-index", [](Bench& b) { [b.encoder setBytes:bytes length:4 atIndex:31]; }},
    {"buffer-offset", [](Bench& b) { [b.encoder setBuffer:b.x offset:2 atIndex:0]; }},
    {"buffer-past-end", [](Bench& b) { [b.encoder setBuffer:b.x offset:4096 atIndex:0]; }},
    {"threadgroup-memory-multiple", [](Bench& b) { [b.encoder setThreadgroupMemoryLength:24 atIndex:0]; }},
    {"threadgroup-memory-limit",
     [](Bench& b) { b.bind(), [b.encoder setThreadgroupMemoryLength:32784 atIndex:0], b.dispatch(); }},
    {"threadgroup-memory-missing",
     [](Bench& b) { b.bind(), [b.encoder setThreadgroupMemoryLength:0 atIndex:0], b.dispatch(); }},
    {"no-pipeline", [](Bench& b) { b.dispatch(); }},
    {"too-many-threads", [](Bench& b) { b.bind(), b.dispatch(1025); }},
    {"no-threads", [](Bench& b) { b.bind(), b.dispatch(0); }},
    {"no-threadgroups",
     [](Bench& b) {
       b.bind();
       [b.encoder dispatchThreadgroups:MTLSizeMake(0, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
     }},
    {"buffer-missing", [](Bench& b) { b.usePipeline(), b.dispatch(); }},
    {"buffer-nil", [](Bench& b) { b.bind(), [b.encoder setBuffer:nil offset:0 atIndex:1], b.dispatch(); }},
    {"buffer-too-short",
     [](Bench& b) {
       b.bind();
       id<MTLBuffer> two = [b.device newBufferWithLength:6 options:MTLResourceStorageModeShared];
       [b.encoder setBuffer:two offset:4 atIndex:1], b.dispatch();
     }},
    {"params-too-short", [](Bench& b) { b.bind(), [b.encoder setBytes:bytes length:4 atIndex:2], b.dispatch(); }},
    {"barrier-scope", [](Bench& b) { [b.encoder memoryBarrierWithScope:0]; }},
    {"fence-after-work", [](Bench& b) { b.bind(), b.dispatch(), [b.encoder waitForFence:b.fence]; }},
    {"fence-order", [](Bench& b) { [b.encoder updateFence:b.fence], [b.encoder waitForFence:b.fence]; }},
    {"fence-missing", [](Bench& b) { b.fills({{}, {}}); }},
    {"fence-not-updated", [](Bench& b) { b.fills({{}, {"waits"}}); }},
    // The second fill's update says nothing of the first.
    {"fence-not-chained", [](Bench& b) { b.fills({{"updates"}, {"updates", "other"}, {"waits"}}); }},
    {"debug-group-pop", [](Bench& b) { [b.encoder popDebugGroup]; }},
    {"debug-group-open", [](Bench& b) { [b.encoder pushDebugGroup:@"x"], [b.encoder endEncoding]; }},
    {"fill-past-end",
     [](Bench& b) {
       [b.encoder endEncoding];
       [[b.buffer blitCommandEncoder] fillBuffer:b.x range:NSMakeRange(4092, 8) value:1];
     }},
    {"fill-multiple",
     [](Bench& b) {
       [b.encoder endEncoding];
       [[b.buffer blitCommandEncoder] fillBuffer:b.x range:NSMakeRange(0, 6) value:1];
     }},
    {"empty-buffer", [](Bench& b) { [b.device newBufferWithLength:0 options:MTLResourceStorageModeShared]; }},
    {"long-buffer",
     [](Bench& b) { [b.device newBufferWithLength:NSUInteger(1) << 40 options:MTLResourceStorageModeShared]; }},
    {"no-copy-start",
     [](Bench& b) {
       char* pages = static_cast<char*>(aligned_alloc(16384, 32768));
       [b.device newBufferWithBytesNoCopy:pages + 4096
                                   length:16384
                                  options:MTLResourceStorageModeShared
                              deallocator:nil];
     }},
    {"no-copy-length",
     [](Bench& b) {
       void* pages = aligned_alloc(16384, 32768);
       [b.device newBufferWithBytesNoCopy:pages length:4096 options:MTLResourceStorageModeShared deallocator:nil];
     }},
    {"residency-unknown",
     [](Bench& b) {
       MTLResidencySetDescriptor* descriptor = [[MTLResidencySetDescriptor alloc] init];
       NSError* error = nil;
       [[b.device newResidencySetWithDescriptor:descriptor error:&error] removeAllocation:b.x];
     }},
    {"capture-stop", [](Bench&) { [[MTLCaptureManager sharedCaptureManager] stopCapture]; }},
    // References are not retained: the buffer is gone when the GPU comes to it.
    {"used-after-release",
     [](Bench& b) {
       setenv("MLXTS_METAL_SIM_FAULT", "delay:100", 1);
       b.bind(), b.dispatch(), b.finish(), [b.x release];
       [b.queue release], [b.queue commandBufferWithUnretainedReferences];
       for (;;) {
       }
     }},
    {"over-released", [](Bench& b) { [b.fence release], [b.fence release]; }},
    {"no-pool", [](Bench&) {}},            // see main
    {"released-no-pool", [](Bench&) {}},  // see main
    {"none",
     [](Bench& b) {
       b.bind(), b.dispatch(), [b.encoder memoryBarrierWithScope:MTLBarrierScopeBuffers], b.dispatch(), b.finish();
     }},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    for (const auto& [name, run] : kCases) puts(name.c_str());
    return 0;
  }
  const auto found = kCases.find(argv[1]);
  if (found == kCases.end()) return 2;
  if (found->first == "no-pool") [NSString stringWithUTF8String:"x"];
  if (found->first == "released-no-pool") [MTLCreateSystemDefaultDevice() release];
  @autoreleasepool {
    Bench bench;
    auto* x = static_cast<float*>([bench.x contents]);
    for (int i = 0; i < 1000; ++i) x[i] = float(i);
    found->second(bench);
    if (found->first != "none") return 0;
    while ([bench.buffer status] < MTLCommandBufferStatusCompleted) {
    }
    const auto* y = static_cast<const float*>([bench.y contents]);
    for (int i = 0; i < 1000; ++i)
      if (y[i] != 2 * float(i)) return 1;
    NSError* error = [bench.buffer error];
    if (error) fprintf(stderr, "%s\n", [[error localizedDescription] UTF8String]);
    return error ? 1 : 0;
  }
}
