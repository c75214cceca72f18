// A GPU as a device uses it: the process's context on it, and the two streams of a device.
#pragma once
#include <string>

#include "cuda_driver.h"
#include "device.h"

namespace mlxts::cuda {

// A call of the driver that failed; `code` is for JavaScript, with the cause as detail.
struct DriverFailure : Failure {
  DriverFailure(const char* code, const std::string& message, Result result)
      : Failure(code, message, causeOf(result)), result(result) {}
  Result result;
};
// Raises what the driver says; `what` is the call that failed.
void check(const Driver& driver, Result result, const char* what, const char* code = "CommandBuffer");

// The primary context of the first GPU, which all devices of a process share, and streams of one device: `compute` runs
// submissions, `copies` what the host allocates, reads and writes meanwhile.
class Gpu {
 public:
  // Failure code DeviceNotFound when the machine has no GPU of compute capability 8.0 or later.
  explicit Gpu(const std::string& driverPath);
  ~Gpu();
  Gpu(const Gpu&) = delete;

  const Driver& driver;
  DeviceNumber number = 0;
  Context context = nullptr;
  Stream compute = nullptr, copies = nullptr;
  Pool pool = nullptr;  // null where the driver has no memory pools
  std::string name;
  int major = 0, minor = 0;
  size_t bytes = 0;

  int attribute(int which) const;
  // What allocations can have: what the GPU has left, and what the pool keeps. 0 when the driver does not say.
  uint64_t freeBytes() const;
  // For messages of a call that has found no memory.
  std::string freeText() const { return "the GPU has " + std::to_string(freeBytes()) + " bytes free"; }
};

// While it lives, calls of this thread go to the GPU's context.
class Current {
 public:
  explicit Current(const Gpu& gpu) : driver_(gpu.driver) { driver_.contextPush(gpu.context); }
  ~Current() {
    Context old;
    driver_.contextPop(&old);
  }
  Current(const Current&) = delete;

 private:
  const Driver& driver_;
};

}  // namespace mlxts::cuda
