// A stand-in for NVIDIA's driver, for tests of core's CUDA device on machines without a GPU. It computes on the CPU
// what a few kernels would, and finds what a driver would suffer in silence: memory used out of its bounds, before its
// allocation or after its release, calls without a context, handles that are gone, things that nobody has given back.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda_driver.h"

namespace standin {

using namespace mlxts::cuda;
using Random = std::mt19937_64;

// From MLXTS_CUDA_STANDIN, read when a program counts the devices, which it does before it opens one. Words between
// commas: `seed:N`; `delay:US`, the most that a task of a stream waits for; `memory:BYTES`; `capability:75`;
// `threads:N` of a threadgroup; `no-device`; `no-pools`; `idle-kernels`: kernels that the stand-in does not have do
// nothing; `FUNCTION@N=RESULT`, the nth call of a function fails (`kernel@N=700`: the nth kernel that runs).
struct Settings {
  uint64_t seed = 1, bytes = uint64_t(3) << 30;
  unsigned delay = 60;
  int capability = 90, threads = 1024, sharedBytes = 232448;
  bool device = true, pools = true, idleKernels = false;
  struct Failing {
    std::string function;
    int call;
    Result result;
  };
  std::vector<Failing> failing;
};
void readSettings();
const Settings& settings();
// What the nth call of a function is to return.
Result injected(const char* function);

// A line of the file that MLXTS_CUDA_STANDIN_REPORT names.
void note(const std::string& line);
// What no program may do.
void fault(const std::string& what);

// Thrown where a GPU would stop: the context is lost.
struct Stopped {
  Result result;
};

// Device memory. Its addresses are no pointers of the host, which cannot reach them at all, and none is used twice.
struct Block {
  Address begin;
  size_t bytes;
  uint8_t* host;
  bool ready = false;  // its allocation has come in the order of its stream
  bool given = false;  // a call has freed it
  ~Block();
};
struct Reached {  // keeps the block while it is used
  std::shared_ptr<Block> block;
  uint8_t* bytes;
  uint32_t* words() const { return reinterpret_cast<uint32_t*>(bytes); }
};
class DeviceMemory {
 public:
  Address reserve(size_t bytes);  // 0: there is not so much
  void begin(Address address);    // its bytes are poison
  bool give(Address address);     // false: there is none at this address
  void end(Address address);
  Reached reach(Address address, size_t bytes, const std::string& who);
  size_t live() const;
  size_t used() const;  // bytes
  void clear();

 private:
  std::shared_ptr<Block> find(Address address) const;
  mutable std::mutex mutex_;
  std::map<Address, std::shared_ptr<Block>> blocks_;
  std::map<Address, size_t> gone_;
  Address next_ = Address(1) << 52;  // no pointer of any processor, and exact as a number of JavaScript
  size_t used_ = 0;
};
DeviceMemory& deviceMemory();

// A kernel as a program has launched it.
struct Call {
  unsigned threadgroups[3], threads[3], sharedBytes;
  std::vector<Address> buffers;
  std::vector<uint8_t> params;
  Address faultRecord;
};
struct Kernel {
  const char* symbol;
  unsigned buffers;
  size_t paramBytes;
  void (*run)(const Call&, Random&);
  bool early = false;  // reads before it waits, so that it may run at any time after an early launch
};
const Kernel* kernelOf(const std::string& symbol);

// One recording of an event.
struct Moment {
  std::atomic<bool> reached{false};
  double milliseconds = 0;
};

struct Node {
  std::function<void(Random&)> run;
  std::vector<size_t> after;
};
// Runs nodes in a random order that their edges allow, several at a time.
void runNodes(const std::vector<Node>& nodes, Random& random);

}  // namespace standin

namespace mlxts::cuda {

struct StreamOf {
  explicit StreamOf(uint64_t seed);
  ~StreamOf();
  // `always`: also when the context is lost.
  void add(std::function<void()> task, bool always = false);
  void synchronize();
  standin::Random random;  // of its own thread

 private:
  void serve();
  std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::deque<std::pair<std::function<void()>, bool>> tasks_;
  bool busy_ = false, stopping_ = false;
  std::thread thread_;
};
struct EventOf {
  bool timed;
  std::shared_ptr<standin::Moment> last;
};
struct ModuleOf {
  std::atomic<bool> loaded{true};
  std::map<std::string, std::unique_ptr<FunctionOf>> functions;
};
struct FunctionOf {
  const standin::Kernel* kernel;
  unsigned mostSharedBytes = 48 << 10;
  bool waits = false;  // for the kernels that it depends on, by itself
  const ModuleOf* module;
};
struct GraphNodeOf {
  size_t index;
  const FunctionOf* kernel = nullptr;
};
struct GraphOf {
  std::vector<standin::Node> nodes;
  std::vector<std::unique_ptr<GraphNodeOf>> handles;
};
struct GraphExecOf {
  std::shared_ptr<const std::vector<standin::Node>> nodes;
};
struct PoolOf {};
struct ContextOf {
  std::atomic<Result> lost{kSuccess};
};

}  // namespace mlxts::cuda
