// The kernels of test/native/*.metal, as C++. Threadgroups run in a random order.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "../../kernels/accumulate.params.h"
#include "../../kernels/increment.params.h"
#include "../../kernels/launch.params.h"
#include "../../kernels/limit.params.h"
#include "fault.h"
#include "standin.h"

namespace standin {

namespace {

template <typename Params>
Params paramsOf(const Call& call) {
  Params params;
  std::memcpy(&params, call.params.data(), sizeof params);
  return params;
}

Reached buffer(const Call& call, unsigned index, size_t words, const char* who) {
  return deviceMemory().reach(call.buffers[index], words * 4, who);
}

std::vector<unsigned> shuffled(unsigned count, Random& random) {
  std::vector<unsigned> all(count);
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), random);
  return all;
}

void increment(const Call& call, Random& random) {
  const auto p = paramsOf<IncrementParams>(call);
  const size_t count = size_t(call.threadgroups[0]) * p.perGroup;
  const auto x = buffer(call, INCREMENT_X, count, "increment"), out = buffer(call, INCREMENT_OUT, count, "increment");
  for (const unsigned group : shuffled(call.threadgroups[0], random)) {
    if (p.microseconds) std::this_thread::sleep_for(std::chrono::microseconds(p.microseconds));
    for (size_t i = size_t(group) * p.perGroup; i < size_t(group + 1) * p.perGroup; ++i)
      out.words()[i] = x.words()[i] + 1;
  }
}

void accumulate(const Call& call, Random&) {
  const auto p = paramsOf<AccumulateParams>(call);
  const uint32_t x = *buffer(call, ACCUMULATE_X, 1, "accumulate").words();
  // What a kernel gets for an absent buffer can be read.
  const uint32_t y = *buffer(call, ACCUMULATE_Y, 1, "accumulate").words();
  const auto total = buffer(call, ACCUMULATE_TOTAL, 1, "accumulate");
  const uint32_t before = *total.words();
  std::this_thread::yield();
  *total.words() = before + x + (p.present & ACCUMULATE_HAS_Y ? y : 0);
}

void limit(const Call& call, Random& random) {
  const auto p = paramsOf<LimitParams>(call);
  const unsigned count = call.threadgroups[0];
  const auto x = buffer(call, LIMIT_X, count, "limit"), out = buffer(call, LIMIT_OUT, count, "limit");
  for (const unsigned group : shuffled(count, random)) {
    if (x.words()[group] < p.limit) {
      out.words()[group] = x.words()[group];
      continue;
    }
    const auto record = deviceMemory().reach(call.faultRecord, sizeof(MlxtsFault), "limit");
    const auto fault = reinterpret_cast<MlxtsFault*>(record.bytes);
    if (fault->code) continue;
    unsigned first = 0;
    while (x.words()[first] < p.limit) ++first;
    *fault = {LIMIT_FAULT_TOO_LARGE, {x.words()[first], 0, 0}};
  }
}

void launch(const Call& call, Random& random) {
  const auto p = paramsOf<LaunchParams>(call);
  const auto& groups = call.threadgroups;
  const unsigned count = groups[0] * groups[1] * groups[2];
  const auto out = buffer(call, LAUNCH_OUT, count * 9, "launch");
  uint32_t bits;
  std::memcpy(&bits, &p.f, 4);
  for (const unsigned group : shuffled(count, random)) {
    const uint32_t words[9] = {groups[0],
                               groups[1],
                               groups[2],
                               p.u,
                               uint32_t(p.i),
                               bits,
                               call.sharedBytes >= 16 ? 16u : 0u,
                               0,
                               p.present & LAUNCH_HAS_ABSENT ? 0u : 1u};
    std::memcpy(out.words() + size_t(group) * 9, words, sizeof words);
  }
}

const Kernel kKernels[] = {
    {"increment_u32", 2, sizeof(IncrementParams), increment},
    {"accumulate_u32", 3, sizeof(AccumulateParams), accumulate, true},
    {"limit_u32", 2, sizeof(LimitParams), limit},
    {"launch_u32", 2, sizeof(LaunchParams), launch},
};

}  // namespace

const Kernel* kernelOf(const std::string& symbol) {
  for (const auto& kernel : kKernels)
    if (symbol == kernel.symbol) return &kernel;
  static const Kernel idle{"a kernel that does nothing", 0, 0, nullptr};
  return settings().idleKernels ? &idle : nullptr;
}

}  // namespace standin
