// Kernels for the tests of core; probe.ts declares them.
#include <time.h>

#include "accumulate.params.h"
#include "contract.h"
#include "convert.params.h"
#include "cpu_kernel.h"
#include "functions.params.h"
#include "increment.params.h"
#include "kept.params.h"
#include "launch.params.h"
#include "limit.params.h"
#include "overrun.params.h"
#include "simd.h"

using namespace mlxts;

namespace {

uint64_t microsecondsNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1000000 + uint64_t(now.tv_nsec) / 1000;
}

void increment(const Launch& l) {
  const auto& p = l.args<IncrementParams>();
  const auto* x = l.buffer<const uint32_t>(INCREMENT_X);
  auto* out = l.buffer<uint32_t>(INCREMENT_OUT);
  for (uint64_t group = l.begin; group < l.end; ++group) {
    if (p.microseconds > 0)
      for (const uint64_t until = microsecondsNow() + p.microseconds; microsecondsNow() < until;) {
      }
    for (uint64_t i = group * p.perGroup; i < (group + 1) * p.perGroup; ++i) out[i] = x[i] + 1;
  }
}

void accumulate(const Launch& l) {
  const auto* y = l.buffer<const uint32_t>(ACCUMULATE_Y);
  *l.buffer<uint32_t>(ACCUMULATE_TOTAL) += *l.buffer<const uint32_t>(ACCUMULATE_X) + (y ? *y : 0);
}

int32_t limit(const Launch& l) {
  const auto& p = l.args<LimitParams>();
  const auto* x = l.buffer<const uint32_t>(LIMIT_X);
  for (uint64_t group = l.begin; group < l.end; ++group) {
    if (x[group] >= p.limit) return l.fail(LIMIT_FAULT_TOO_LARGE, x[group]);
    l.buffer<uint32_t>(LIMIT_OUT)[group] = x[group];
  }
  return 0;
}

// Where the arrays lie, in bytes from the first, and the bits that two of them begin with before all are filled.
void overrun(const Launch& l) {
  const auto& p = l.args<OverrunParams>();
  const auto scratch = scratch_of(l, p);
  uint32_t found[5];
  const size_t states = OVERRUN_HEADS * OVERRUN_ROWS, codes = OVERRUN_ROWS * p.columns;
  memcpy(found + 3, scratch.state, sizeof(float));
  found[4] = scratch.codes[0];
  for (size_t i = 0; i < states; ++i) scratch.state[i] = 1.0f;
  for (size_t i = 0; i < codes; ++i) scratch.codes[i] = 2;
  uint8_t* const ends[] = {reinterpret_cast<uint8_t*>(scratch.state + states), scratch.nothing,
                           reinterpret_cast<uint8_t*>(scratch.codes + codes)};
  for (uint32_t i = 0; i < p.extra; ++i) ends[p.array][i] ^= 0xff;
  const auto* first = static_cast<const uint8_t*>(l.scratch);
  found[0] = uint32_t(reinterpret_cast<uint8_t*>(scratch.state) - first);
  found[1] = uint32_t(scratch.nothing - first);
  found[2] = uint32_t(reinterpret_cast<uint8_t*>(scratch.codes) - first);
  // Several ranges of threadgroups run at once: one of them tells.
  if (l.begin == 0) memcpy(l.buffer<uint32_t>(OVERRUN_OUT), found, sizeof(found));
}

void kept(const Launch& l) {
  const auto& p = l.args<KeptParams>();
  uint32_t& left = *scratch_of(l, p).left;
  const uint32_t found = l.scratchKept ? (left == p.tag ? 1 : 2) : 0;
  left = p.tag;
  for (uint64_t group = l.begin; group < l.end; ++group)
    l.buffer<uint32_t>(KEPT_OUT)[group] = group == l.begin ? found : 3;
}

// Nine words for each threadgroup; the scratch is filled to its end.
void launch(const Launch& l) {
  const auto& p = l.args<LaunchParams>();
  auto* out = l.buffer<uint32_t>(LAUNCH_OUT);
  uint8_t* scratch = scratch_of(l, p).bytes;
  for (uint64_t group = l.begin; group < l.end; ++group) {
    for (uint64_t i = 0; i < p.scratchBytes; ++i) scratch[i] = uint8_t(group);
    uint64_t kept = 0;
    for (uint64_t i = 0; i < p.scratchBytes; ++i) kept += scratch[i] == uint8_t(group);
    uint32_t bits;
    memcpy(&bits, &p.f, 4);
    const uint32_t words[9] = {l.threadgroups[0],
                               l.threadgroups[1],
                               l.threadgroups[2],
                               p.u,
                               uint32_t(p.i),
                               bits,
                               uint32_t(kept),
                               uint32_t(reinterpret_cast<uintptr_t>(scratch) % 64),
                               uint32_t(l.buffers[LAUNCH_ABSENT] == nullptr && l.bytes[LAUNCH_ABSENT] == 0)};
    memcpy(out + group * 9, words, sizeof words);
  }
}

template <typename From, typename To>
void convert(const Launch& l) {
  const size_t count = l.args<ConvertParams>().count;
  const auto* x = l.buffer<const From>(CONVERT_X);
  auto* out = l.buffer<To>(CONVERT_OUT);
  auto* scalar = l.buffer<To>(CONVERT_SCALAR);
  for_lanes(
      count, [&](size_t i) { store(out + i, load(x + i)); },
      [&](size_t i, int n) { store_partial(out + i, load_partial(x + i, n), n); });
  for (size_t i = 0; i < count; ++i) scalar[i] = from_f32<To>(to_f32(x[i]));
}

void functions(const Launch& l) {
  const size_t count = l.args<FunctionsParams>().count;
  const auto* x = l.buffer<const float>(FUNCTIONS_X);
  const auto apply = [&](float* out, auto f) {
    for_lanes(
        count, [&](size_t i) { store(out + i, f(load(x + i))); },
        [&](size_t i, int n) { store_partial(out + i, f(load_partial(x + i, n)), n); });
  };
  apply(l.buffer<float>(FUNCTIONS_EXP), [](vf32 v) { return exp(v); });
  apply(l.buffer<float>(FUNCTIONS_LOG), [](vf32 v) { return log(v); });
  apply(l.buffer<float>(FUNCTIONS_SIGMOID), [](vf32 v) { return sigmoid(v); });
  apply(l.buffer<float>(FUNCTIONS_SILU), [](vf32 v) { return silu(v); });
  apply(l.buffer<float>(FUNCTIONS_SILU_FOR_BF16), [](vf32 v) { return silu<bf16>(v); });
}

}  // namespace

MLXTS_KERNEL(increment_u32, increment)
MLXTS_KERNEL(accumulate_u32, accumulate)
MLXTS_KERNEL(limit_u32, limit)
MLXTS_KERNEL(launch_u32, launch)
MLXTS_KERNEL(overrun_u32, overrun)
MLXTS_KERNEL(kept_u32, kept)
MLXTS_KERNEL(convert_f32_bf16, convert<float, bf16>)
MLXTS_KERNEL(convert_f32_f16, convert<float, f16>)
MLXTS_KERNEL(convert_bf16_f32, convert<bf16, float>)
MLXTS_KERNEL(convert_f16_f32, convert<f16, float>)
MLXTS_KERNEL(convert_bf16_bf16, convert<bf16, bf16>)
MLXTS_KERNEL(convert_f16_f16, convert<f16, f16>)
MLXTS_KERNEL(functions_f32, functions)

// Compiled for another declaration than contract.test.ts has.
MLXTS_CONTRACT(stale, 1u)
