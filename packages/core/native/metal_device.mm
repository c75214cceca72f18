// The Metal device: macOS 14 and later on Apple silicon. Kernels are compiled from source when they are first used.
#import <Metal/Metal.h>
#include <dlfcn.h>

#include <deque>
#include <map>

#include "device.h"
#include "metal_memory.h"
#include "metal_queue.h"
#include "metal_support.h"

namespace mlxts {

namespace {

constexpr uint32_t kInlineBytes = 4096, kSlots = 31;
// Thread positions in the grid stay below 2^32 with threadgroups of 1024 threads.
constexpr uint64_t kThreadgroupsPerAxis = (uint64_t(1) << 22) - 1;

struct MetalLibrary : Library {
  MetalLibrary(std::string name, Owned<id<MTLLibrary>> library) : name(std::move(name)), library(std::move(library)) {}
  ~MetalLibrary() override {
    @autoreleasepool {
      library = {};
    }
  }
  const std::string name;
  Owned<id<MTLLibrary>> library;
};

// Keeps this library loaded when the last worker that loaded it ends: Metal's threads still call completion handlers in
// it.
void stayLoaded() {
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&stayLoaded), &self)) dlopen(self.dli_fname, RTLD_NOW | RTLD_NODELETE);
}

// Writes a .gputrace of everything until the device is closed.
class Capture {
 public:
  Capture(id<MTLDevice> device, const std::string& path) : running_(!path.empty()) {
    if (!running_) return;
    auto descriptor = Owned<MTLCaptureDescriptor*>::adopt([[MTLCaptureDescriptor alloc] init]);
    [descriptor.get() setCaptureObject:device];
    [descriptor.get() setDestination:MTLCaptureDestinationGPUTraceDocument];
    [descriptor.get() setOutputURL:[NSURL fileURLWithPath:toNSString(path)]];
    NSError* error = nil;
    if ([[MTLCaptureManager sharedCaptureManager] startCaptureWithDescriptor:descriptor.get() error:&error]) return;
    throw Failure("Io",
                  "cannot capture to " + path + ": " + describe(error) +
                      " (captures need METAL_CAPTURE_ENABLED=1 and a path that does not exist)",
                  path);
  }
  ~Capture() {
    if (running_) [[MTLCaptureManager sharedCaptureManager] stopCapture];
  }
  Capture(const Capture&) = delete;
  bool running() const { return running_; }

 private:
  bool running_;
};

class MetalDevice : public Device {
 public:
  explicit MetalDevice(const MetalOptions& options) {
    device_ = Owned<id<MTLDevice>>::adopt(MTLCreateSystemDefaultDevice());
    if (!device_) throw Failure("DeviceNotFound", "the system has no Metal device");
    id<MTLDevice> device = device_.get();
    const std::string name = [[device name] UTF8String];
    // simdgroup matrices and bfloat need it.
    if (![device supportsFamily:MTLGPUFamilyApple7])
      throw Failure("DeviceNotFound", name + " is not an Apple silicon GPU");
    stayLoaded();
    capture_ = std::make_unique<Capture>(device, options.capture);
    queue_ = std::make_unique<MetalQueue>(device, capture_->running());
    residency_ = std::make_shared<Residency>(device, queue_->get());
    info_.kind = "metal";
    info_.name = name;
    info_.level = "msl3.1";
    info_.unifiedMemory = [device hasUnifiedMemory];
    info_.kernelFormat = "metal";
    info_.limits = {uint32_t([device maxThreadsPerThreadgroup].width),
                    uint32_t([device maxThreadgroupMemoryLength]),
                    kSlots,
                    kInlineBytes,
                    4,
                    uint32_t(kMetalPage),
                    uint32_t(kMetalPage),
                    1,
                    [device maxBufferLength],
                    {kThreadgroupsPerAxis, kThreadgroupsPerAxis, kThreadgroupsPerAxis}};
  }

  ~MetalDevice() override {
    @autoreleasepool {
      queue_.reset();
      capture_.reset();
      pipelines_.clear();
      residency_.reset();
      device_ = {};
    }
  }

  const DeviceInfo& info() const override { return info_; }

  // Metal zero-fills buffers. The length is rounded up to whole words, because Metal fills whole words.
  std::shared_ptr<Memory> allocate(uint64_t bytes) override {
    const uint64_t span = (bytes + 3) / 4 * 4;
    if (span < bytes || span > info_.limits.maxBufferBytes) return nullptr;
    return pooled([&]() -> std::shared_ptr<Memory> {
      auto buffer = Owned<id<MTLBuffer>>::adopt([device_.get() newBufferWithLength:span options:kOptions]);
      if (!buffer) return nullptr;
      auto memory = Memory::wrap([buffer.get() contents], bytes, false, counters, [] {});
      memory->attachment = std::make_shared<MetalBuffer>(std::move(buffer), residency_, false);
      return memory;
    });
  }

  void attach(Memory& memory) override {
    const uint64_t past = reinterpret_cast<uint64_t>(memory.data()) % kMetalPage;
    if (past != 0 || memory.span() % kMetalPage != 0)
      throw Failure("InvalidArgument",
                    "memory must start on and span whole pages of " + std::to_string(kMetalPage) + " bytes",
                    std::to_string(memory.span()) + " bytes, " + std::to_string(past) + " past a page");
    pooled([&] {
      auto buffer = Owned<id<MTLBuffer>>::adopt([device_.get() newBufferWithBytesNoCopy:memory.data()
                                                                                 length:memory.span()
                                                                                options:kOptions
                                                                            deallocator:nil]);
      if (!buffer)
        throw Failure("BufferAllocation", "Metal refused " + std::to_string(memory.span()) + " bytes without a copy");
      memory.attachment = std::make_shared<MetalBuffer>(std::move(buffer), residency_, true);
    });
  }

  std::shared_ptr<Library> openLibrary(const std::string& source, const std::string& name) override {
    return pooled([&]() -> std::shared_ptr<Library> {
      auto options = Owned<MTLCompileOptions*>::adopt([[MTLCompileOptions alloc] init]);
      [options.get() setLanguageVersion:MTLLanguageVersion3_1];
      // NaN, infinity and signed zero keep their meaning; kernels ask for fast functions by name.
      [options.get() setFastMathEnabled:NO];
      NSError* error = nil;
      auto library = Owned<id<MTLLibrary>>::adopt([device_.get() newLibraryWithSource:toNSString(source)
                                                                              options:options.get()
                                                                                error:&error]);
      if (!library) throw Failure("ShaderCompilation", name + " does not compile", describe(error));
      [library.get() setLabel:toNSString(name)];
      return std::make_shared<MetalLibrary>(name, std::move(library));
    });
  }

  uint32_t pipeline(const std::shared_ptr<Library>& library, const std::string& symbol) override {
    auto metal = std::static_pointer_cast<MetalLibrary>(library);
    const auto key = std::make_pair(metal, symbol);
    if (const auto found = ids_.find(key); found != ids_.end()) return found->second;
    pooled([&] {
      auto function = Owned<id<MTLFunction>>::adopt([metal->library.get() newFunctionWithName:toNSString(symbol)]);
      if (!function) throw Failure("KernelNotFound", "kernel `" + symbol + "` not found in " + metal->name, symbol);
      NSError* error = nil;
      auto state =
          Owned<id<MTLComputePipelineState>>::adopt([device_.get() newComputePipelineStateWithFunction:function.get()
                                                                                                 error:&error]);
      if (!state) throw Failure("ShaderCompilation", symbol + " does not compile", describe(error));
      const auto threads = uint32_t([state.get() maxTotalThreadsPerThreadgroup]);
      pipelines_.push_back({symbol, std::move(state), threads});
    });
    return ids_[key] = uint32_t(pipelines_.size() - 1);
  }

  uint32_t maxThreads(uint32_t pipeline) const override { return known(pipeline).maxThreads; }

  void submit(uint64_t id, std::shared_ptr<const CommandList> list, SubmitOptions options,
              std::function<void(Outcome)> done) override {
    check(*list);
    pooled([&] { queue_->submit(id, std::move(list), pipelines_, options, std::move(done), *residency_); });
  }

  void drain() override { queue_->drain(); }

 private:
  // The queue's fence orders all passes, so Metal need not track hazards for each buffer.
  static constexpr MTLResourceOptions kOptions = MTLResourceStorageModeShared | MTLResourceHazardTrackingModeUntracked;

  const MetalPipeline& known(uint32_t pipeline) const {
    if (pipeline < pipelines_.size()) return pipelines_[pipeline];
    throw Failure("InvalidArgument",
                  "submit: `pipeline` must be known to this device, got " + std::to_string(pipeline));
  }

  // Refuses what would make Metal end the process. The encoder in TypeScript checks the same, with better messages.
  void check(const CommandList& list) const {
    const auto must = [](bool holds, const char* rule) {
      if (!holds) throw Failure("InvalidArgument", std::string("submit: ") + rule);
    };
    for (const auto& c : list.commands) {
      for (uint32_t i = 0; i < c.bindings; ++i)
        must(list.bindings[c.firstBinding + i].offset % 4 == 0, "a binding must start at a multiple of 4 bytes");
      if (c.kind == CommandKind::fill) {
        const auto& b = list.bindings[c.firstBinding];
        const bool toEnd = b.offset + b.bytes == list.memories[b.memory]->bytes();
        must(b.offset % 4 == 0 && (b.bytes % 4 == 0 || toEnd), "a fill must cover whole words");
      }
      if (c.kind != CommandKind::dispatch) continue;
      const double threads =
          double(c.threadsPerThreadgroup[0]) * c.threadsPerThreadgroup[1] * c.threadsPerThreadgroup[2];
      must(threads >= 1 && threads <= known(c.pipeline).maxThreads, "too many threads in a threadgroup");
      must(c.bindings + (c.fault == kNoFault ? 1 : 2) <= kSlots, "too many buffers");
      must(c.paramWords * 4 <= kInlineBytes, "too many parameters");
      must(c.scratchBytes <= info_.limits.maxThreadgroupBytes, "too much threadgroup memory");
    }
  }

  Owned<id<MTLDevice>> device_;
  DeviceInfo info_;
  std::unique_ptr<Capture> capture_;
  std::unique_ptr<MetalQueue> queue_;
  std::shared_ptr<Residency> residency_;
  std::deque<MetalPipeline> pipelines_;
  std::map<std::pair<std::shared_ptr<MetalLibrary>, std::string>, uint32_t> ids_;
};

}  // namespace

std::shared_ptr<Device> openMetalDevice(const MetalOptions& options) {
  return pooled([&]() -> std::shared_ptr<Device> { return std::make_shared<MetalDevice>(options); });
}

}  // namespace mlxts
