// Generated from the declarations of kernels; `npm run gen` rewrites it.
#include "contract.h"

MLXTS_CONTRACT(dequantize, 1143384587u)
MLXTS_CONTRACT(gate_products, 2706069219u)
MLXTS_CONTRACT(gather_quantized_matmul, 652783880u)
MLXTS_CONTRACT(gather_quantized_matvec, 2574094132u)
MLXTS_CONTRACT(gather_quantized_matvec_swiglu, 4051607074u)
MLXTS_CONTRACT(multi_quantized_matvec, 3984501428u)
MLXTS_CONTRACT(quantize, 105998510u)
MLXTS_CONTRACT(quantized_embedding, 106708444u)
MLXTS_CONTRACT(quantized_matmul, 603165984u)
MLXTS_CONTRACT(quantized_matmul_rows, 330293292u)
MLXTS_CONTRACT(quantized_matvec, 1881236945u)
MLXTS_CONTRACT(quantized_matvec_rows, 665708824u)
MLXTS_CONTRACT(quantized_matvec_swiglu, 1545291443u)
