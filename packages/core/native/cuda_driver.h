// NVIDIA's driver, opened at run time: neither building nor running needs a CUDA toolkit. Declarations are ours, from
// the documentation of the driver's interface.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace mlxts::cuda {

using Address = uint64_t;  // of device memory
using Result = int;
using DeviceNumber = int;
using Context = struct ContextOf*;
using Stream = struct StreamOf*;
using Event = struct EventOf*;
using Module = struct ModuleOf*;
using Function = struct FunctionOf*;
using Graph = struct GraphOf*;
using GraphNode = struct GraphNodeOf*;
using GraphExec = struct GraphExecOf*;
using Pool = struct PoolOf*;

struct KernelNode {
  Function function;
  unsigned threadgroups[3], threads[3], sharedBytes;
  void** arguments;
  void** extra;
};
// From a kernel to one that may be launched before it has ended: the second waits by itself for what it depends on.
struct GraphEdge {
  unsigned char fromPort = 1;  // each threadgroup of the first has allowed it, or has ended
  unsigned char toPort = 0;
  unsigned char type = 1;
  unsigned char reserved[5] = {};
};
struct MemsetNode {
  Address to;
  size_t pitch;
  unsigned value, elementBytes;
  size_t width, height;
};

enum : Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kUncorrectableMemory = 214,
  kInvalidPtx = 218,
  kUnsupportedPtx = 222,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kOutOfResources = 701,
  kTimeout = 702,
};
enum : int {  // attributes of a device
  kMaxThreadsPerBlock = 1,
  kMaxSharedBytesOfBlock = 97,
  kMajor = 75,
  kMinor = 76,
  kMemoryPools = 115,
};
enum : int {
  kFunctionMaxThreads = 0,
  kFunctionStaticSharedBytes = 1,
  kFunctionMaxDynamicSharedBytes = 8,
  kFunctionSharedPercent = 9  // of a multiprocessor's memory that may be shared; the first cache has the rest
};
enum : int { kJitErrorLog = 5, kJitErrorLogBytes = 6 };
enum : int { kPoolReleaseThreshold = 4, kPoolReservedBytes = 5, kPoolUsedBytes = 7 };
enum : unsigned { kStreamNonBlocking = 1, kEventBlockingSync = 1, kEventNoTiming = 2 };

// X(name here, name in the library, parameters)
#define MLXTS_CUDA_FUNCTIONS(X)                                                                                    \
  X(init, cuInit, (unsigned))                                                                                      \
  X(driverVersion, cuDriverGetVersion, (int*))                                                                     \
  X(errorName, cuGetErrorName, (Result, const char**))                                                             \
  X(errorString, cuGetErrorString, (Result, const char**))                                                         \
  X(deviceCount, cuDeviceGetCount, (int*))                                                                         \
  X(deviceGet, cuDeviceGet, (DeviceNumber*, int))                                                                  \
  X(deviceName, cuDeviceGetName, (char*, int, DeviceNumber))                                                       \
  X(deviceAttribute, cuDeviceGetAttribute, (int*, int, DeviceNumber))                                              \
  X(deviceBytes, cuDeviceTotalMem_v2, (size_t*, DeviceNumber))                                                     \
  X(devicePool, cuDeviceGetDefaultMemPool, (Pool*, DeviceNumber))                                                  \
  X(poolSetAttribute, cuMemPoolSetAttribute, (Pool, int, void*))                                                   \
  X(poolGetAttribute, cuMemPoolGetAttribute, (Pool, int, void*))                                                   \
  X(poolTrim, cuMemPoolTrimTo, (Pool, size_t))                                                                     \
  X(memoryInfo, cuMemGetInfo_v2, (size_t*, size_t*))                                                               \
  X(contextRetain, cuDevicePrimaryCtxRetain, (Context*, DeviceNumber))                                             \
  X(contextRelease, cuDevicePrimaryCtxRelease_v2, (DeviceNumber))                                                  \
  X(contextPush, cuCtxPushCurrent_v2, (Context))                                                                   \
  X(contextPop, cuCtxPopCurrent_v2, (Context*))                                                                    \
  X(streamCreate, cuStreamCreate, (Stream*, unsigned))                                                             \
  X(streamDestroy, cuStreamDestroy_v2, (Stream))                                                                   \
  X(streamSynchronize, cuStreamSynchronize, (Stream))                                                              \
  X(streamWaitEvent, cuStreamWaitEvent, (Stream, Event, unsigned))                                                 \
  X(eventCreate, cuEventCreate, (Event*, unsigned))                                                                \
  X(eventDestroy, cuEventDestroy_v2, (Event))                                                                      \
  X(eventRecord, cuEventRecord, (Event, Stream))                                                                   \
  X(eventQuery, cuEventQuery, (Event))                                                                             \
  X(eventSynchronize, cuEventSynchronize, (Event))                                                                 \
  X(eventElapsed, cuEventElapsedTime, (float*, Event, Event))                                                      \
  X(memoryAllocate, cuMemAlloc_v2, (Address*, size_t))                                                             \
  X(memoryFree, cuMemFree_v2, (Address))                                                                           \
  X(memoryAllocateAsync, cuMemAllocAsync, (Address*, size_t, Stream))                                              \
  X(memoryFreeAsync, cuMemFreeAsync, (Address, Stream))                                                            \
  X(hostAllocate, cuMemHostAlloc, (void**, size_t, unsigned))                                                      \
  X(hostFree, cuMemFreeHost, (void*))                                                                              \
  X(copyIn, cuMemcpyHtoDAsync_v2, (Address, const void*, size_t, Stream))                                          \
  X(copyOut, cuMemcpyDtoHAsync_v2, (void*, Address, size_t, Stream))                                               \
  X(fill, cuMemsetD8Async, (Address, unsigned char, size_t, Stream))                                               \
  X(moduleLoad, cuModuleLoadDataEx, (Module*, const void*, unsigned, int*, void**))                                \
  X(moduleUnload, cuModuleUnload, (Module))                                                                        \
  X(moduleFunction, cuModuleGetFunction, (Function*, Module, const char*))                                         \
  X(functionAttribute, cuFuncGetAttribute, (int*, int, Function))                                                  \
  X(functionSetAttribute, cuFuncSetAttribute, (Function, int, int))                                                \
  X(launch, cuLaunchKernel,                                                                                        \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void**, void**))      \
  X(graphCreate, cuGraphCreate, (Graph*, unsigned))                                                                \
  X(graphDestroy, cuGraphDestroy, (Graph))                                                                         \
  X(graphAddKernel, cuGraphAddKernelNode, (GraphNode*, Graph, const GraphNode*, size_t, const KernelNode*))        \
  X(graphAddEdges, cuGraphAddDependencies_v2, (Graph, const GraphNode*, const GraphNode*, const GraphEdge*, size_t)) \
  X(graphAddFill, cuGraphAddMemsetNode, (GraphNode*, Graph, const GraphNode*, size_t, const MemsetNode*, Context)) \
  X(graphAddEmpty, cuGraphAddEmptyNode, (GraphNode*, Graph, const GraphNode*, size_t))                             \
  X(graphInstantiate, cuGraphInstantiateWithFlags, (GraphExec*, Graph, unsigned long long))                        \
  X(graphUpload, cuGraphUpload, (GraphExec, Stream))                                                               \
  X(graphLaunch, cuGraphLaunch, (GraphExec, Stream))                                                               \
  X(graphExecDestroy, cuGraphExecDestroy, (GraphExec))

struct Driver {
#define MLXTS_CUDA_POINTER(name, symbol, parameters) Result(*name) parameters = nullptr;
  MLXTS_CUDA_FUNCTIONS(MLXTS_CUDA_POINTER)
#undef MLXTS_CUDA_POINTER

  // "CUDA_ERROR_OUT_OF_MEMORY: out of memory"
  std::string describe(Result result) const;
};

// The driver of this machine, opened once and never closed. `path`: another library in its place; empty: the system's.
// Failure code DeviceNotFound when there is none, or none that is new enough.
const Driver& driver(const std::string& path);

// What is lost with a context: every later call on it fails.
bool isLost(Result result);
// The cause of a failed submission, one of those that Outcome names.
std::string causeOf(Result result);

}  // namespace mlxts::cuda
