// Pinned memory through which the host's bytes go to a GPU and come from it.
#pragma once
#include <memory>
#include <string>

#include "cuda_context.h"

namespace mlxts::cuda {

// Pieces, some of which the host uses while the GPU uses others, and for each when the GPU is done with it.
template <int pieceCount>
struct StagingOf {
  static constexpr int kPieces = pieceCount;
  const Gpu& gpu;
  uint8_t* pieces[kPieces] = {};
  Event done[kPieces] = {};

  // Failure code BufferAllocation when there is no pinned memory.
  static std::unique_ptr<StagingOf> make(const Gpu& gpu, uint64_t pieceBytes, unsigned eventFlags = kEventNoTiming) {
    std::unique_ptr<StagingOf> made(new StagingOf(gpu));
    for (int i = 0; i < kPieces; ++i) {
      void* piece = nullptr;
      const Result result = gpu.driver.hostAllocate(&piece, pieceBytes, 0);
      if (result == kOutOfMemory)
        throw Failure("BufferAllocation", "cuMemHostAlloc: " + gpu.driver.describe(result), std::to_string(pieceBytes));
      check(gpu.driver, result, "cuMemHostAlloc");
      made->pieces[i] = static_cast<uint8_t*>(piece);
      check(gpu.driver, gpu.driver.eventCreate(&made->done[i], eventFlags), "cuEventCreate");
    }
    return made;
  }
  ~StagingOf() {
    for (int i = 0; i < kPieces; ++i) {
      if (done[i]) gpu.driver.eventDestroy(done[i]);
      if (pieces[i]) gpu.driver.hostFree(pieces[i]);
    }
  }
  StagingOf(const StagingOf&) = delete;

  // Records when the GPU will be done with a piece, and waits until it is.
  void record(int piece, Stream stream) const {
    check(gpu.driver, gpu.driver.eventRecord(done[piece], stream), "cuEventRecord");
  }
  void wait(int piece) const { check(gpu.driver, gpu.driver.eventSynchronize(done[piece]), "cuEventSynchronize"); }

 private:
  explicit StagingOf(const Gpu& gpu) : gpu(gpu) {}
};
using Staging = StagingOf<2>;
using SmallStaging = StagingOf<4>;

}  // namespace mlxts::cuda
