// The CUDA device: NVIDIA GPUs of compute capability 8.0 and later. Kernels come as PTX, which the driver compiles when
// they are first used; it keeps what it has compiled in its own cache.
#include <map>
#include <system_error>

#include "cuda_load.h"
#include "cuda_memory.h"
#include "cuda_queue.h"
#include "device.h"

namespace mlxts {

namespace cuda {
namespace {

constexpr uint32_t kSlots = 31, kInlineBytes = 3584;  // arguments of a kernel take 4096 bytes in all
constexpr uint64_t kThreadgroups[3] = {0x7fffffff, 65535, 65535};
constexpr size_t kLogBytes = 16384;
constexpr char kFewLaunchAtOnce[] = R"(
	{
	.reg .pred %few;
	.reg .b32 %all, %axis;
	mov.u32 %all, %nctaid.x;
	mov.u32 %axis, %nctaid.y;
	mul.lo.u32 %all, %all, %axis;
	mov.u32 %axis, %nctaid.z;
	mul.lo.u32 %all, %all, %axis;
	setp.le.u32 %few, %all, 116;
	@%few griddepcontrol.launch_dependents;
	})";
constexpr char kWait[] = R"(
	griddepcontrol.wait;
	griddepcontrol.launch_dependents;)";

// GPUs of compute capability 9.0 launch a kernel while the kernels before it run, if it then waits for them. PTX for 8.0
// has no word for that, nor for other things that they can: a kernel has these in comments (cuda_machine.h), which become
// instructions here. One that does not say where it waits does so at its begin. Then the next one may be launched: were
// it before, threadgroups of many later kernels would fill the GPU. Few threadgroups leave room for those of the next one,
// which may have weights to bring, so they let it be launched at once. PTX for 9.0 alone keeps its target. False where the
// text has no such places.
bool addWait(std::string& ptx) {
  const std::string old = ".target sm_80\n", own = ".target sm_90a\n";
  const std::string comment = "// sm_90: ", wait = "griddepcontrol.wait;";
  const size_t from = ptx.find(old), entry = ptx.find(".entry"), body = ptx.find('{', entry);
  if (from == std::string::npos && ptx.find(own) == std::string::npos) return false;
  if (entry == std::string::npos || body == std::string::npos) return false;
  if (ptx.find(".entry", entry + 1) != std::string::npos) return false;
  const size_t first = ptx.find(comment);
  const bool saysWhere = first != std::string::npos && ptx.find(wait, first) != std::string::npos;
  ptx.insert(body + 1, std::string(kFewLaunchAtOnce) + (saysWhere ? "" : kWait));
  for (size_t at = entry; (at = ptx.find(comment, at)) != std::string::npos;) ptx.erase(at, comment.size());
  if (from != std::string::npos) ptx.replace(from, old.size(), ".target sm_90\n");
  return true;
}

struct PtxLibrary : Library {
  PtxLibrary(std::shared_ptr<Gpu> gpu, std::string name, Module module, bool waits)
      : gpu(std::move(gpu)), name(std::move(name)), module(module), waits(waits) {}
  ~PtxLibrary() override {
    const Current current(*gpu);
    gpu->driver.moduleUnload(module);
  }
  const std::shared_ptr<Gpu> gpu;
  const std::string name;
  const Module module;
  const bool waits;  // its kernel does, for those that it depends on
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(const CudaOptions& options) {
    gpu_ = std::make_shared<Gpu>(options.driver);
    heap_ = std::make_shared<Heap>(gpu_);
    queue_ = std::make_unique<Queue>(gpu_, heap_);
    info_.kind = "cuda";
    info_.name = gpu_->name;
    info_.level = "sm_" + std::to_string(gpu_->major) + std::to_string(gpu_->minor);
    info_.unifiedMemory = false;
    info_.kernelFormat = "ptx";
    info_.limits = {uint32_t(gpu_->attribute(kMaxThreadsPerBlock)),
                    uint32_t(gpu_->attribute(kMaxSharedBytesOfBlock)),
                    kSlots,
                    kInlineBytes,
                    4,
                    1,
                    4096,
                    1,
                    gpu_->bytes,
                    {kThreadgroups[0], kThreadgroups[1], kThreadgroups[2]}};
  }

  const DeviceInfo& info() const override { return info_; }

  std::shared_ptr<Memory> allocate(uint64_t bytes) override {
    return bytes <= info_.limits.maxBufferBytes ? heap_->allocate(bytes, counters) : nullptr;
  }

  void attach(Memory&) override {
    throw Failure("InvalidArgument", "memory must be the device's own", "memory of the host");
  }

  std::optional<uint64_t> freeBytes() const override { return gpu_->freeBytes(); }

  std::unique_ptr<FileLoad> loadFile(const std::string& path, uint64_t bytes, std::function<void()> moved) override {
    int error = 0;
    File file = openPlainFile(path, bytes, error);
    if (!file) throw fileFailure(error);
    return startLoad(gpu_, *heap_, std::move(file), bytes, counters, std::move(moved));
  }

  std::shared_ptr<Library> openLibrary(const std::string& text, const std::string& name) override {
    const Current current(*gpu_);
    std::string ptx = text;
    const bool waits = gpu_->major >= 9 && addWait(ptx);
    std::string log(kLogBytes, '\0');
    int options[] = {kJitErrorLog, kJitErrorLogBytes};
    void* values[] = {log.data(), reinterpret_cast<void*>(kLogBytes)};
    Module module = nullptr;
    const auto load = [&] { return gpu_->driver.moduleLoad(&module, ptx.c_str(), 2, options, values); };
    Result result = load();
    if (result == kOutOfMemory && gpu_->pool) {
      // Code lies outside of the pool, which keeps what buffers have given back.
      gpu_->driver.streamSynchronize(gpu_->copies);
      gpu_->driver.poolTrim(gpu_->pool, 0);
      result = load();
    }
    if (result == kOutOfMemory)
      throw Failure("BufferAllocation",
                    name + " has no memory for its code, " + std::to_string(ptx.size()) + " bytes of PTX: " +
                        gpu_->freeText(),
                    std::to_string(ptx.size()));
    if (isLost(result)) check(gpu_->driver, result, "cuModuleLoadDataEx");
    if (result != kSuccess)
      throw Failure("ShaderCompilation", name + " does not compile",
                    gpu_->driver.describe(result) + "\n" + std::string(log.c_str()));
    return std::make_shared<PtxLibrary>(gpu_, name, module, waits);
  }

  uint32_t pipeline(const std::shared_ptr<Library>& library, const std::string& symbol) override {
    auto ptx = std::static_pointer_cast<PtxLibrary>(library);
    const auto key = std::make_pair(ptx, symbol);
    if (const auto found = ids_.find(key); found != ids_.end()) return found->second;
    const Current current(*gpu_);
    const auto& driver = gpu_->driver;
    const char* code = "ShaderCompilation";
    Pipeline made{};
    const Result result = driver.moduleFunction(&made.function, ptx->module, ("mlxts_" + symbol).c_str());
    if (result == kNotFound)
      throw Failure("KernelNotFound", "kernel `" + symbol + "` not found in " + ptx->name, symbol);
    if (isLost(result)) code = "CommandBuffer";
    check(driver, result, "cuModuleGetFunction", code);
    int threads = 0, fixedBytes = 0;
    check(driver, driver.functionAttribute(&threads, kFunctionMaxThreads, made.function), "cuFuncGetAttribute", code);
    check(driver, driver.functionAttribute(&fixedBytes, kFunctionStaticSharedBytes, made.function),
          "cuFuncGetAttribute", code);
    // Without this a kernel gets 48 KiB at most.
    check(driver,
          driver.functionSetAttribute(made.function, kFunctionMaxDynamicSharedBytes,
                                      int(info_.limits.maxThreadgroupBytes) - fixedBytes),
          "cuFuncSetAttribute", code);
    // Else a kernel that shares more than the one before it waits until that has left the multiprocessor.
    check(driver, driver.functionSetAttribute(made.function, kFunctionSharedPercent, 100), "cuFuncSetAttribute", code);
    made.maxThreads = uint32_t(threads);
    made.waits = ptx->waits;
    pipelines_.push_back(made);
    return ids_[key] = uint32_t(pipelines_.size() - 1);
  }

  uint32_t maxThreads(uint32_t pipeline) const override { return known(pipeline).maxThreads; }

  void submit(uint64_t id, std::shared_ptr<const CommandList> list, SubmitOptions options,
              std::function<void(Outcome)> done) override {
    refuse(*list);
    queue_->submit(id, std::move(list), pipelines_, options, std::move(done));
  }

  void drain() override { queue_->drain(); }

 private:
  const Pipeline& known(uint32_t pipeline) const {
    if (pipeline < pipelines_.size()) return pipelines_[pipeline];
    throw Failure("InvalidArgument",
                  "submit: `pipeline` must be known to this device, got " + std::to_string(pipeline));
  }

  // Refuses what a kernel could not run with. The encoder in TypeScript checks the same, with better messages.
  void refuse(const CommandList& list) const {
    const auto must = [](bool holds, const char* rule) {
      if (!holds) throw Failure("InvalidArgument", std::string("submit: ") + rule);
    };
    for (const auto& c : list.commands) {
      if (c.kind != CommandKind::dispatch) continue;
      for (uint32_t i = 0; i < c.bindings; ++i)
        must(list.bindings[c.firstBinding + i].offset % 4 == 0, "a binding must start at a multiple of 4 bytes");
      const double threads =
          double(c.threadsPerThreadgroup[0]) * c.threadsPerThreadgroup[1] * c.threadsPerThreadgroup[2];
      must(threads >= 1 && threads <= known(c.pipeline).maxThreads, "too many threads in a threadgroup");
      for (int axis = 0; axis < 3; ++axis)
        must(c.threadgroups[axis] <= kThreadgroups[axis], "too many threadgroups on an axis");
      must(c.threadsPerThreadgroup[2] <= 64, "too many threads on the last axis of a threadgroup");
      must(c.bindings + (c.fault == kNoFault ? 1 : 2) <= kSlots, "too many buffers");
      must(c.paramWords * 4 <= kInlineBytes, "too many parameters");
      must(c.scratchBytes <= info_.limits.maxThreadgroupBytes, "too much threadgroup memory");
    }
  }

  std::shared_ptr<Gpu> gpu_;
  std::shared_ptr<Heap> heap_;
  DeviceInfo info_;
  std::deque<Pipeline> pipelines_;
  std::map<std::pair<std::shared_ptr<PtxLibrary>, std::string>, uint32_t> ids_;
  std::unique_ptr<Queue> queue_;  // ends first: it runs what the others hold
};

}  // namespace
}  // namespace cuda

std::shared_ptr<Device> openCudaDevice(const CudaOptions& options) {
  try {
    return std::make_shared<cuda::CudaDevice>(options);
  } catch (const cuda::DriverFailure& failure) {
    throw Failure("DeviceNotFound", failure.what());
  } catch (const std::system_error& error) {
    throw Failure("DeviceNotFound", std::string("cannot start its thread: ") + error.what());
  }
}

}  // namespace mlxts
