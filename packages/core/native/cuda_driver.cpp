#include "cuda_driver.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include "device.h"

namespace mlxts::cuda {

namespace {

Driver open(const std::string& path) {
  const char* name = path.empty() ? "libcuda.so.1" : path.c_str();
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Failure("DeviceNotFound", "no NVIDIA driver: " + std::string(dlerror()));
  Driver driver;
#define MLXTS_CUDA_FIND(name, symbol, parameters)                                                               \
  driver.name = reinterpret_cast<Result(*) parameters>(dlsym(library, #symbol));                                \
  if (!driver.name)                                                                                             \
    throw Failure("DeviceNotFound", "the NVIDIA driver is too old: it has no " #symbol " (CUDA 12 or later is " \
                                                                                       "needed)");
  MLXTS_CUDA_FUNCTIONS(MLXTS_CUDA_FIND)
#undef MLXTS_CUDA_FIND
  if (const Result result = driver.init(0); result != kSuccess)
    throw Failure("DeviceNotFound", "the NVIDIA driver does not start: " + driver.describe(result));
  return driver;
}

}  // namespace

std::string Driver::describe(Result result) const {
  const char *name = nullptr, *text = nullptr;
  errorName(result, &name);
  errorString(result, &text);
  return std::string(name ? name : std::to_string(result)) + ": " + (text ? text : "unknown error");
}

const Driver& driver(const std::string& path) {
  static std::mutex mutex;
  // Never destroyed: threads of devices may still use them while a process exits.
  static auto& drivers = *new std::map<std::string, Driver>();
  std::lock_guard lock(mutex);
  const auto known = drivers.find(path);
  return known != drivers.end() ? known->second : drivers.emplace(path, open(path)).first->second;
}

bool isLost(Result result) {
  switch (result) {
    case 46:   // CUDA_ERROR_DEVICE_UNAVAILABLE
    case 101:  // CUDA_ERROR_INVALID_DEVICE
    case 201:  // CUDA_ERROR_INVALID_CONTEXT
    case kUncorrectableMemory:
    case 220:  // CUDA_ERROR_NVLINK_UNCORRECTABLE
    case 226:  // CUDA_ERROR_CONTAINED
    case kIllegalAddress:
    case kTimeout:
    case 709:  // CUDA_ERROR_CONTEXT_IS_DESTROYED
    case 710:  // CUDA_ERROR_ASSERT
    case 714:  // CUDA_ERROR_HARDWARE_STACK_ERROR
    case 715:  // CUDA_ERROR_ILLEGAL_INSTRUCTION
    case 716:  // CUDA_ERROR_MISALIGNED_ADDRESS
    case 717:  // CUDA_ERROR_INVALID_ADDRESS_SPACE
    case 718:  // CUDA_ERROR_INVALID_PC
    case 719:  // CUDA_ERROR_LAUNCH_FAILED
    case 999:  // CUDA_ERROR_UNKNOWN
      return true;
    default:
      return false;
  }
}

std::string causeOf(Result result) {
  switch (result) {
    case kIllegalAddress:
      return "pageFault";
    case kOutOfMemory:
    case kOutOfResources:
      return "outOfMemory";
    default:
      return isLost(result) ? "deviceLost" : "unknown";
  }
}

}  // namespace mlxts::cuda
