// Which elements of an 8 × 8 simdgroup matrix a lane holds: two neighbors of one row. Nothing else knows this.
#pragma once

namespace metal_sim {

/** Row of a lane's elements. */
inline __attribute__((always_inline, nodebug)) unsigned simdgroup_row(unsigned lane) {
  return ((lane / 4) & 4) + (lane / 2) % 4;
}

/** Column of a lane's first element. */
inline __attribute__((always_inline, nodebug)) unsigned simdgroup_column(unsigned lane) {
  return ((lane / 4) & 2) * 2 + (lane % 2) * 2;
}

}  // namespace metal_sim
