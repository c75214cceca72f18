// One threadgroup: one token, its heads and its row of kv.
#include <string.h>

#include "cpu_kernel.h"
#include "mla_split.params.h"

using namespace mlxts;

namespace {

// [rows, first + second] → [rows, first], [rows, second]
template <typename T>
void split(const T* from, size_t rows, size_t first, size_t second, T* head, T* tail) {
  for (size_t row = 0; row < rows; ++row, from += first + second) {
    memcpy(head + row * first, from, first * sizeof(T));
    memcpy(tail + row * second, from + first, second * sizeof(T));
  }
}

template <typename T>
void mla_split(const Launch& l) {
  const auto& p = l.args<MlaSplitParams>();
  const size_t nope = p.nope, rope = p.rope, latent = p.latentDim;
  const size_t rows = (l.end - l.begin) * p.heads, row = l.begin * p.heads;
  split(l.buffer<const T>(MLA_SPLIT_Q) + row * (nope + rope), rows, nope, rope,
        l.buffer<T>(MLA_SPLIT_Q_NOPE) + row * nope, l.buffer<T>(MLA_SPLIT_Q_PE) + row * rope);
  split(l.buffer<const T>(MLA_SPLIT_KV) + l.begin * (latent + rope), l.end - l.begin, latent, rope,
        l.buffer<T>(MLA_SPLIT_LATENT) + l.begin * latent, l.buffer<T>(MLA_SPLIT_K_PE) + l.begin * rope);
}

}  // namespace

MLXTS_KERNEL(mla_split_u16, mla_split<uint16_t>)
MLXTS_KERNEL(mla_split_u32, mla_split<uint32_t>)
