// One thread: one element of the state of one sequence.
#include "conv_rollback.params.h"
#include "sequences.h"

using namespace metal;
using namespace mlxts;

template <typename T>
kernel void conv_rollback(device const T* history [[buffer(CONV_ROLLBACK_HISTORY)]],
                          device const Index* rejected [[buffer(CONV_ROLLBACK_REJECTED)]],
                          device T* state [[buffer(CONV_ROLLBACK_FINAL_STATE)]],
                          constant ConvRollbackParams& p [[buffer(CONV_ROLLBACK_PARAMS)]],
                          device MlxtsFault* fault [[buffer(CONV_ROLLBACK_FAULT)]],
                          uint3 at [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  const uint kept = p.kernelSize - 1, spare = p.historyRows - kept;
  const Indices counts = {rejected, true};
  if (!rejected_right(counts, p.sequences, spare, {fault, lane}, CONV_ROLLBACK_FAULT_REJECTED)) return;
  if (at.x >= kept * p.channels) return;
  const ulong first = ulong(at.y) * p.historyRows + spare - rejected_at(counts, at.y, spare);
  state[ulong(at.y) * kept * p.channels + at.x] = history[first * p.channels + at.x];
}

#define CONV_ROLLBACK(name, T) \
  template [[host_name("conv_rollback_" name)]] [[kernel]] decltype(conv_rollback<T>) conv_rollback<T>;
CONV_ROLLBACK("u16", ushort)
CONV_ROLLBACK("u32", uint)
