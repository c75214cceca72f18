// Files on their way into memory of a GPU.
#pragma once
#include <functional>
#include <memory>

#include "cuda_memory.h"
#include "device.h"

namespace mlxts::cuda {

// Copies the first `bytes` bytes of a file; see Device::loadFile. Failure codes BufferAllocation, and CommandBuffer
// when the device is lost.
std::unique_ptr<FileLoad> startLoad(std::shared_ptr<Gpu> gpu, Heap& heap, File file, uint64_t bytes,
                                    std::shared_ptr<MemoryCounters> counters, std::function<void()> moved);

}  // namespace mlxts::cuda
