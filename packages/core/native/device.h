// The interface of devices: cpu_device.cpp implements it for the CPU, metal_device.mm for Metal, cuda_device.cpp for
// NVIDIA's GPUs.
#pragma once
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "fault.h"
#include "memory.h"

namespace mlxts {

// An error with one of the public codes (ErrorCode of errors.ts); `detail` is a second text of some (symbol, log,
// path).
struct Failure : std::runtime_error {
  Failure(std::string code, const std::string& message, std::string detail = "")
      : std::runtime_error(message), code(std::move(code)), detail(std::move(detail)) {}
  std::string code, detail;
};

// A file that the system refuses; ESTALE stands for one that is shorter than it was said to be.
inline Failure fileFailure(int error) {
  return Failure(error == ENOMEM ? "BufferAllocation" : "Io",
                 error == ESTALE ? "the file has become shorter" : std::strerror(error));
}

struct Limits {
  uint32_t maxThreadsPerThreadgroup, maxThreadgroupBytes, maxBufferSlots, maxInlineBytes, bufferOffsetAlignment,
      wrapAlignment, pageBytes, threads;
  uint64_t maxBufferBytes, maxThreadgroupsPerAxis[3];
};

struct DeviceInfo {
  std::string kind, name, level;
  Limits limits;
  bool unifiedMemory;
  // What a library is opened from: the path of a shared library ("library"), or a text ("metal", "ptx").
  std::string kernelFormat = "library";
};

struct Library {
  virtual ~Library() = default;
  // What the kernel was compiled for, as contract.h gives it; 0 where the library does not say.
  virtual uint32_t contract(const std::string&) const { return 0; }
};

struct Binding {
  uint32_t memory;  // index into CommandList::memories, or kAbsent
  uint64_t offset, bytes;
};
inline constexpr uint32_t kAbsent = 0xffffffff;

inline constexpr uint32_t kNoFault = 0xffffffff;
inline constexpr size_t kGuardBytes = 64;  // as in scratch.ts

enum class CommandKind : uint32_t { dispatch = 1, barrier = 2, fill = 3 };

// One recorded command, decoded and checked: bindings and params are ranges of the list's flat arrays.
struct Command {
  CommandKind kind;
  uint32_t pipeline = 0, tag = 0;
  uint32_t threadgroups[3] = {1, 1, 1}, threadsPerThreadgroup[3] = {1, 1, 1};
  uint32_t scratchBytes = 0;
  uint32_t firstGuard = 0, guards = 0;  // offsets of kGuardBytes bytes in the scratch that a kernel must not write
  uint32_t firstBinding = 0, bindings = 0;
  uint32_t written = 0;  // a bit for each of the first 32 bindings: those that the kernel writes
  uint32_t early = 0;    // the same: those that it may read while dispatches before it run
  uint32_t firstParam = 0, paramWords = 0;
  uint32_t fault = kNoFault;  // index among the list's fault records
  uint32_t fillByte = 0;
};

struct CommandList {
  std::vector<Command> commands;
  std::vector<Binding> bindings;
  std::vector<uint32_t> params;
  std::vector<uint32_t> guards;
  std::vector<std::shared_ptr<Memory>> memories;
  uint32_t tags = 0;    // one more than the largest tag
  uint32_t faults = 0;  // dispatches that may find faults in their data
  // The device's own form of the list, made when it is first replayed.
  mutable std::shared_ptr<void> prepared;
};

inline constexpr uint32_t kUnknownTag = 0xffffffff;

// How a submission ended. `code` is empty when it succeeded. Otherwise `tag` is that of the command that failed, where
// the device can tell, and `fault` or `message` says why.
struct Outcome {
  uint64_t id = 0;
  std::string code, cause, message;
  uint32_t tag = kUnknownTag;
  MlxtsFault fault = {};
  double milliseconds = 0;
  std::vector<double> microseconds;  // by tag, when profiled
};

struct SubmitOptions {
  bool profile = false;
  bool replayed = false;  // the list may be submitted again
};

// A file on its way into a device's memory, on threads of its own. The destructor stops it and waits for them.
class FileLoad {
 public:
  virtual ~FileLoad() = default;
  // Bytes that have arrived.
  virtual uint64_t loaded() const = 0;
  // Whether its threads have done what they do.
  virtual bool ended() const = 0;
  // Lets it end soon, with nothing.
  virtual void stop() = 0;
  // Once it has ended: read-only memory with all bytes, null when it was stopped. Raises the Failure that ended it.
  virtual std::shared_ptr<Memory> take() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual std::shared_ptr<Memory> allocate(uint64_t bytes) = 0;
  // What could be allocated now, where the device knows it.
  virtual std::optional<uint64_t> freeBytes() const { return std::nullopt; }
  // Lets the device reach memory made elsewhere. Failure code InvalidArgument when its address or length does not suit
  // it.
  virtual void attach(Memory&) {}
  // Read-only memory with the first `bytes` bytes of a file, mapped. Failure codes Io and BufferAllocation.
  std::shared_ptr<Memory> mapFile(const std::string& path, uint64_t bytes) {
    int error = 0;
    auto memory = Memory::map(path, bytes, info().limits.wrapAlignment, counters, error);
    if (!memory) throw fileFailure(error);
    attach(*memory);
    return memory;
  }
  // Starts to copy a file into memory of the device; Failure codes as of mapFile, and CommandBuffer. `moved` is called on
  // threads of the load, when many more bytes have arrived and when it has ended.
  virtual std::unique_ptr<FileLoad> loadFile(const std::string& path, uint64_t bytes, std::function<void()> moved);
  // `from`: what info().kernelFormat says; `name` is for messages and traces. Failure code
  // ShaderCompilation with the compiler's log as detail.
  virtual std::shared_ptr<Library> openLibrary(const std::string& from, const std::string& name) = 0;
  // An id for (library, symbol), the same one each time. Failure code KernelNotFound when it is missing.
  virtual uint32_t pipeline(const std::shared_ptr<Library>& library, const std::string& symbol) = 0;
  // The most threads that a threadgroup of this pipeline may have.
  virtual uint32_t maxThreads(uint32_t pipeline) const = 0;
  // Runs the list after everything submitted before; `done` is called once, on a thread of the device.
  virtual void submit(uint64_t id, std::shared_ptr<const CommandList> list, SubmitOptions options,
                      std::function<void(Outcome)> done) = 0;
  // Blocks until everything submitted so far has ended and its `done` has returned.
  virtual void drain() = 0;
  std::shared_ptr<MemoryCounters> counters = std::make_shared<MemoryCounters>();
};

struct CpuOptions {
  unsigned threads = 0;                                          // 0: physical cores
  std::string level;                                             // instruction-set level; empty: the best one
  enum class Order { forward, reverse } order = Order::forward;  // of threadgroups between barriers
};
std::shared_ptr<Device> openCpuDevice(const CpuOptions& options);
// Instruction-set levels this processor runs, best first.
std::vector<std::string> cpuLevels();

struct MetalOptions {
  std::string capture;  // a .gputrace file to write while the device is open; empty: none
};
struct CudaOptions {
  std::string driver;  // a library in place of the system's libcuda.so.1; empty: none
};
std::shared_ptr<Device> openCudaDevice(const CudaOptions& options);

// Only in builds with MLXTS_METAL.
std::shared_ptr<Device> openMetalDevice(const MetalOptions& options);

}  // namespace mlxts
