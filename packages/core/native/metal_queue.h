// Submissions in flight on one command queue.
#pragma once
#import <Metal/Metal.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device.h"
#include "metal_memory.h"
#include "metal_support.h"

namespace mlxts {

struct MetalPipeline {
  std::string symbol;
  Owned<id<MTLComputePipelineState>> state;
  uint32_t maxThreads;
};

// A submission in flight.
struct Flight {
  std::shared_ptr<const CommandList> list;  // keeps the memory that the GPU uses
  std::function<void(Outcome)> done;
  Outcome outcome;
  Owned<id<MTLBuffer>> faults;  // a record for each dispatch that may find faults
  uint32_t running = 1;         // command buffers, and one for the encoding
  double begin = 0, end = 0;    // seconds on the GPU's clock
};

// Shared with completion handlers, which may outlive the queue's owner.
struct Flights {
  std::mutex mutex;
  std::condition_variable idle;
  std::deque<std::shared_ptr<Flight>> inOrder;
  std::vector<Owned<id<MTLBuffer>>> spareFaults;  // all zero
  bool lost = false;

  // One part of `flight` has ended. Reports the submissions at the front that have ended as a whole, in order.
  void ended(Flight& flight);
  // The first fault record that a dispatch has written becomes the outcome; the records are zeroed and kept for reuse.
  void takeFaults(Flight& flight);
  static void fail(Flight& flight, const std::string& cause, const std::string& message, uint32_t tag);
};

class MetalQueue {
 public:
  // `traced`: dispatches get debug groups.
  MetalQueue(id<MTLDevice> device, bool traced);
  ~MetalQueue();
  id<MTLCommandQueue> get() const { return queue_.get(); }
  void submit(uint64_t id, std::shared_ptr<const CommandList> list, const std::deque<MetalPipeline>& pipelines,
              SubmitOptions options, std::function<void(Outcome)> done, Residency& residency);
  void drain();

 private:
  class Pass;
  // Zeroed records for the dispatches of a list that may find faults; false when Metal refuses.
  bool giveFaults(Flight& flight);
  bool encode(const std::shared_ptr<Flight>& flight, const std::deque<MetalPipeline>& pipelines, size_t begin,
              size_t end);

  id<MTLDevice> device_;  // retained by the owner of the queue
  Owned<id<MTLCommandQueue>> queue_;
  // Orders all passes of the queue, also where two buffers lie over the same pages.
  Owned<id<MTLFence>> fence_;
  // Bound in place of absent buffers: Metal requires a buffer for each parameter of a kernel.
  Owned<id<MTLBuffer>> absent_;
  bool fenced_ = false, traced_;
  std::shared_ptr<Flights> flights_ = std::make_shared<Flights>();
};

}  // namespace mlxts
