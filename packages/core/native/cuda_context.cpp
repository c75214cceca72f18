#include "cuda_context.h"

namespace mlxts::cuda {

void check(const Driver& driver, Result result, const char* what, const char* code) {
  if (result != kSuccess) throw DriverFailure(code, std::string(what) + ": " + driver.describe(result), result);
}

Gpu::Gpu(const std::string& driverPath) : driver(cuda::driver(driverPath)) {
  const char* code = "DeviceNotFound";
  int count = 0;
  if (driver.deviceCount(&count) != kSuccess || count == 0)
    throw Failure(code, "the NVIDIA driver shows this process no GPU");
  check(driver, driver.deviceGet(&number, 0), "cuDeviceGet", code);
  char text[256] = "";
  check(driver, driver.deviceName(text, sizeof text, number), "cuDeviceGetName", code);
  name = text;
  major = attribute(kMajor), minor = attribute(kMinor);
  if (major < 8)
    throw Failure(code, name + " has compute capability " + std::to_string(major) + "." + std::to_string(minor) +
                            ", and 8.0 or later is needed");
  check(driver, driver.deviceBytes(&bytes, number), "cuDeviceTotalMem", code);
  check(driver, driver.contextRetain(&context, number), "cuDevicePrimaryCtxRetain", code);
  const Current current(*this);
  try {
    check(driver, driver.streamCreate(&compute, kStreamNonBlocking), "cuStreamCreate", code);
    check(driver, driver.streamCreate(&copies, kStreamNonBlocking), "cuStreamCreate", code);
    if (attribute(kMemoryPools)) {
      check(driver, driver.devicePool(&pool, number), "cuDeviceGetDefaultMemPool", code);
      // Freed memory is kept for the next allocation: taking it from the system anew takes milliseconds.
      uint64_t keep = ~uint64_t(0);
      check(driver, driver.poolSetAttribute(pool, kPoolReleaseThreshold, &keep), "cuMemPoolSetAttribute", code);
    }
  } catch (...) {
    if (compute) driver.streamDestroy(compute);
    if (copies) driver.streamDestroy(copies);
    driver.contextRelease(number);
    throw;
  }
}

Gpu::~Gpu() {
  {
    const Current current(*this);
    driver.streamSynchronize(copies);
    if (pool) driver.poolTrim(pool, 0);
    driver.streamDestroy(compute);
    driver.streamDestroy(copies);
  }
  driver.contextRelease(number);
}

uint64_t Gpu::freeBytes() const {
  const Current current(*this);
  size_t left = 0, all = 0;
  if (driver.memoryInfo(&left, &all) != kSuccess) return 0;
  uint64_t reserved = 0, used = 0;
  const bool known = pool && driver.poolGetAttribute(pool, kPoolReservedBytes, &reserved) == kSuccess &&
                     driver.poolGetAttribute(pool, kPoolUsedBytes, &used) == kSuccess && used <= reserved;
  return known ? left + (reserved - used) : left;
}

int Gpu::attribute(int which) const {
  int value = 0;
  check(driver, driver.deviceAttribute(&value, which, number), "cuDeviceGetAttribute", "DeviceNotFound");
  return value;
}

}  // namespace mlxts::cuda
