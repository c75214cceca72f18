// Submissions in flight on a GPU's stream: they run in order, and a thread reports their ends.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda_context.h"
#include "cuda_memory.h"
#include "device.h"

namespace mlxts::cuda {

struct Pipeline {
  Function function;
  uint32_t maxThreads;
  bool waits;  // it begins by waiting for the kernels that it depends on
};

class Queue {
 public:
  Queue(std::shared_ptr<Gpu> gpu, std::shared_ptr<Heap> heap);
  ~Queue();
  Queue(const Queue&) = delete;

  // `list` has been checked. A list that is replayed becomes a graph when it is first submitted: dispatches between two
  // barriers are parallel branches, and each submission is one launch.
  void submit(uint64_t id, std::shared_ptr<const CommandList> list, const std::deque<Pipeline>& pipelines,
              SubmitOptions options, std::function<void(Outcome)> done);
  void drain();

 private:
  struct Flight;
  struct Replay;
  class Report;
  class Arguments;
  class GraphWriter;

  std::shared_ptr<Memory> records(uint32_t count);
  std::unique_ptr<Report> report(uint32_t count);
  std::shared_ptr<Replay> replayOf(const CommandList& list, const std::deque<Pipeline>& pipelines);
  void start(Flight& flight, const std::deque<Pipeline>& pipelines, SubmitOptions options);
  void run(const CommandList& list, const Command& command, Address faults, const std::deque<Pipeline>& pipelines);
  Event event();
  void end(Flight& flight);
  void fail(Flight& flight, Result result, const std::string& message);
  void takeFaults(Flight& flight);
  void serve();

  const std::shared_ptr<Gpu> gpu_;
  const std::shared_ptr<Heap> heap_;
  std::shared_ptr<MemoryCounters> own_ = std::make_shared<MemoryCounters>();  // of memory that is no buffer
  std::shared_ptr<Memory> absent_;                                            // what kernels get for absent buffers
  std::shared_ptr<Memory> clearing_;                                          // of the waiter
  std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::deque<std::unique_ptr<Flight>> flights_;
  std::vector<Event> spareEvents_;
  std::vector<std::unique_ptr<Report>> spareReports_;
  bool stopping_ = false;
  std::atomic<bool> lost_{false};
  std::thread waiter_;
};

}  // namespace mlxts::cuda
