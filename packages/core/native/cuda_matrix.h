// Which elements of an 8 × 8 simdgroup matrix a lane holds in a CUDA translation: two adjacent ones of a row. In place
// of metal_matrix.h; cuda_metal.h has the matrices.
#pragma once
#include <metal_simdgroup_matrix>
#include <metal_stdlib>

namespace mlxts {

METAL_FUNC uint matrix_row(uint lane) { return lane / 4; }

// Column of the first of the two.
METAL_FUNC uint matrix_column(uint lane) { return lane % 4 * 2; }

// The four lanes that hold a row differ in the bits of these two.
constant constexpr uint kRowLane = 1, kRowLanes = 2;

}  // namespace mlxts
