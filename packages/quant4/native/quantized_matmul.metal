// More rows of x.
#include "metal_matmul.h"
#include "quantized_matmul.params.h"

using namespace metal;
using namespace mlxts;

template <typename X, typename S, typename O, int Bits>
kernel void quantized_matmul(device const X* x [[buffer(QUANTIZED_MATMUL_X)]],
                             device const uint* weight [[buffer(QUANTIZED_MATMUL_WEIGHT)]],
                             device const S* scales [[buffer(QUANTIZED_MATMUL_SCALES)]],
                             device const S* biases [[buffer(QUANTIZED_MATMUL_BIASES)]],
                             device const uchar* bias [[buffer(QUANTIZED_MATMUL_BIAS)]],
                             device O* out [[buffer(QUANTIZED_MATMUL_OUT)]],
                             constant QuantizedMatmulParams& p [[buffer(QUANTIZED_MATMUL_PARAMS)]],
                             threadgroup uchar* memory [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                             uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const Batch batch = batch_at(p, group.z);
  const uint m0 = group.y * kM, row0 = group.x * kN;
  const ProductPart part = product_part<kM, kN, kPartM, kPartN>(simdgroup, p.m - m0, p.rows - row0);
  const AffineMatrix<S, Bits> w = weights_at<Bits>(weight, scales, biases, p, batch.q);
  const EvenRows<const X> rows = {x + (batch.x * p.m + m0) * p.cols, p.cols};
  Products products = products_of<X>(rows, w, scratch_of(memory, p), part, row0, p.m - m0, index);
  store(products, part, out + ulong(group.z) * p.m * p.rows, m0, p.m, row0, p.rows, lane,
        LinearBias{bias, p.biasDtype, 0});
}

#define MATMUL(X, S, O, bits)                          \
  template                                             \
      [[host_name("quantized_matmul_" #X "_" #S "_" #O \
                  "_b" #bits)]] [[kernel]] decltype(quantized_matmul<X, S, O, bits>) quantized_matmul<X, S, O, bits>;
MLXTS_PRODUCTS(MATMUL)
