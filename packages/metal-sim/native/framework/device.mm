// The simulated MTLDevice.
#include <Block.h>
#include <objc/runtime.h>
#include <sys/mman.h>

#include <cstdlib>

#include "objects.h"

using namespace metal_framework;

@interface SimDevice : NSObject <MTLDevice> {
 @public
  Settings settings_;
}
@end

@implementation SimDevice
- (NSString*)name {
  return @"Metal simulator on the CPU (no GPU)";
}
- (MTLSize)maxThreadsPerThreadgroup {
  return MTLSizeMake(kThreads, kThreads, kThreads);
}
- (BOOL)hasUnifiedMemory {
  return YES;
}
- (uint64_t)recommendedMaxWorkingSetSize {
  return strtoull(fault("working-set").value_or("17179869184").c_str(), nullptr, 10);
}
- (NSUInteger)maxBufferLength {
  return NSUInteger(1) << 34;
}
- (NSUInteger)maxThreadgroupMemoryLength {
  return metal_sim::max_threadgroup_bytes();
}
- (BOOL)supportsFamily:(MTLGPUFamily)family {
  if (fault("old-gpu")) return NO;
  return family <= (fault("apple7") ? MTLGPUFamilyApple7 : MTLGPUFamilyApple8) || family == MTLGPUFamilyMetal3;
}
// Residency sets came with macOS 15.
- (BOOL)respondsToSelector:(SEL)selector {
  if (sel_isEqual(selector, @selector(newResidencySetWithDescriptor:error:)) && fault("macos-14")) return NO;
  return [super respondsToSelector:selector];
}
- (void)dealloc {
  mustHavePool();
  [super dealloc];
}
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)most {
  must(most > 0, "a command queue of no command buffers");
  if (fault("no-queue")) return nil;
  SimQueue* queue = [[SimQueue alloc] init];
  queue->device_ = self;
  queue->gpu_ = std::make_shared<GpuThread>();
  queue->gpu_->settings = settings_;
  queue->gpu_->random.seed(settings_.seed);
  queue->gpu_->most = most;
  queue->thread_ = std::thread([gpu = queue->gpu_] { gpu->serve(); });
  return queue;
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  must(length > 0, "a buffer of no bytes");
  must(length <= [self maxBufferLength], "a buffer longer than maxBufferLength");
  must((options & 0xf0) == MTLResourceStorageModeShared, "this simulator has shared storage only");
  if (fault("no-buffer")) return nil;
  const size_t span = (length + kPage - 1) / kPage * kPage;
  // Memory that nobody touches costs nothing; what lies around whole pages of Metal's size goes back.
  void* mapped = mmap(nullptr, span + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nil;
  auto* begin = static_cast<uint8_t*>(mapped);
  auto* data = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(mapped) + kPage - 1) / kPage * kPage);
  if (data > begin) munmap(begin, size_t(data - begin));
  if (data < begin + kPage) munmap(data + span, size_t(begin + kPage - data));
  SimBuffer* buffer = [[SimBuffer alloc] init];
  buffer->data_ = data;
  buffer->length_ = length;
  buffer->untracked_ = (options & MTLResourceHazardTrackingModeUntracked) != 0;
  buffer->mapped_ = span;
  return buffer;
}
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)pointer
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void (^)(void*, NSUInteger))deallocator {
  must(pointer && reinterpret_cast<uintptr_t>(pointer) % kPage == 0,
       "a no-copy buffer that does not start on a page of 16384 bytes");
  must(length > 0 && length % kPage == 0, "a no-copy buffer that is no whole number of pages of 16384 bytes");
  must((options & 0xf0) == MTLResourceStorageModeShared, "this simulator has shared storage only");
  if (fault("no-wrap") || length > [self maxBufferLength]) return nil;
  SimBuffer* buffer = [[SimBuffer alloc] init];
  buffer->data_ = pointer;
  buffer->length_ = length;
  buffer->untracked_ = (options & MTLResourceHazardTrackingModeUntracked) != 0;
  if (deallocator) buffer->deallocator_ = Block_copy(deallocator);
  return buffer;
}
- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                               options:(MTLCompileOptions*)options
                                 error:(NSError* __autoreleasing*)error {
  must(source != nil, "newLibraryWithSource without a source");
  must(options && [options languageVersion] == MTLLanguageVersion3_1, "this simulator compiles MSL 3.1");
  must(![options fastMathEnabled], "this simulator has no fast math");
  std::string log;
  auto* engine = openLibrary([source UTF8String], settings_.build, log);
  if (!engine) {
    if (error) *error = metal_framework::error("MTLLibraryErrorDomain", 3, log);
    return nil;
  }
  SimLibrary* library = [[SimLibrary alloc] init];
  library->engine_ = engine;
  return library;
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                                             error:(NSError* __autoreleasing*)error {
  must(function != nil, "newComputePipelineState without a function");
  if (fault("no-pipeline")) {
    if (error) *error = metal_framework::error("AGXMetalG13X", 2, "Compute function exceeds available stack space");
    return nil;
  }
  auto* from = (SimFunction*)function;
  metal_sim_kernel kernel;
  metal_sim_kernel_at(from->library_->engine_, from->kernel_, &kernel);
  SimPipeline* pipeline = [[SimPipeline alloc] init];
  pipeline->library_ = [from->library_ retain];
  pipeline->kernel_ = from->kernel_;
  pipeline->maxThreads_ = kernel.max_threads ? kernel.max_threads : kThreads;
  if (const auto threads = fault("pipeline-threads")) pipeline->maxThreads_ = NSUInteger(atoi(threads->c_str()));
  for (uint32_t i = 0; i < kernel.argument_count; ++i) {
    metal_sim_argument argument;
    metal_sim_argument_at(from->library_->engine_, from->kernel_, i, &argument);
    pipeline->arguments_.push_back(argument);
  }
  return pipeline;
}
- (id<MTLFence>)newFence {
  return fault("no-fence") ? nil : [[SimFence alloc] init];
}
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor
                                               error:(NSError* __autoreleasing*)error {
  must(!fault("macos-14"), "newResidencySetWithDescriptor is not there before macOS 15");
  must(descriptor != nil, "newResidencySet without a descriptor");
  if (fault("no-residency")) {
    if (error) *error = metal_framework::error("MTLResidencySetErrorDomain", 1, "Residency sets are not supported.");
    return nil;
  }
  return [[SimResidencySet alloc] init];
}
@end

id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
  if (fault("no-device")) return nil;
  SimDevice* device = [[SimDevice alloc] init];
  device->settings_ = settings();
  return device;
}
