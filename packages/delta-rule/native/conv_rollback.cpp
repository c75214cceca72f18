// One threadgroup: the state of one sequence, which is a block of rows of its history.
#include "conv_rollback.params.h"
#include "cpu_kernel.h"
#include "sequences.h"
#include "simd.h"

using namespace mlxts;

namespace {

template <typename T>
int32_t conv_rollback(const Launch& l) {
  const auto& p = l.args<ConvRollbackParams>();
  const Indices rejected = l.indices(CONV_ROLLBACK_REJECTED);
  const size_t kept = p.kernelSize - 1, spare = p.historyRows - kept;
  if (!rejected_right(rejected, p.sequences, spare, l, CONV_ROLLBACK_FAULT_REJECTED)) return 1;
  for (size_t sequence = l.begin; sequence < l.end; ++sequence) {
    const size_t first = sequence * p.historyRows + spare - rejected_at(rejected, sequence, spare);
    memcpy(l.buffer<T>(CONV_ROLLBACK_FINAL_STATE) + sequence * kept * p.channels,
           l.buffer<const T>(CONV_ROLLBACK_HISTORY) + first * p.channels, kept * p.channels * sizeof(T));
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(conv_rollback_u16, conv_rollback<uint16_t>)
MLXTS_KERNEL(conv_rollback_u32, conv_rollback<uint32_t>)
