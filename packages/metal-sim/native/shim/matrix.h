// 8 × 8 matrices held by a simdgroup.
#pragma once
#include "simd.h"
#include "simdgroup_layout.h"

namespace metal_sim {

/** d = a b + c in f32, each element summed over k = 0..7 with fused multiply-adds. */
inline __attribute__((nodebug, no_sanitize("thread"))) void multiply_accumulate(Exchange& shared, uint32_t phase) {
  const float *a = shared.a[phase], *b = shared.b[phase], *c = shared.c[phase];
  for (int row = 0; row < 8; ++row) {
    float sum[8];
    for (int j = 0; j < 8; ++j) sum[j] = c[row * 8 + j];
    for (int k = 0; k < 8; ++k)
      for (int j = 0; j < 8; ++j) sum[j] = __builtin_fmaf(a[row * 8 + k], b[k * 8 + j], sum[j]);
    for (int j = 0; j < 8; ++j) shared.d[phase][row * 8 + j] = sum[j];
  }
}

/** Matrix operations need all 32 lanes. Loads and stores wait for them in check mode only, where it is reported. */
METAL_SIM_INLINE void whole_simdgroup(const Site& site) {
#ifdef METAL_SIM_CHECK
  Thread* self = current();
  const uint32_t phase = self->phase++ & 1;
  self->host->simdgroup_rendezvous(0, site, nullptr, phase);
  if (self->exchange->active[phase] != 0xffffffffu) self->host->undefined(Undefined::kLane, site, kSimdgroupSize);
#else
  (void)site;
#endif
}

}  // namespace metal_sim

namespace metal {

template <typename T, int Columns, int Rows = Columns>
class simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "simdgroup matrices are 8 × 8");
  static_assert(is_floating_point_v<T>, "simdgroup matrices hold float, half or bfloat");

 public:
  typedef vec<T, 2> storage_type;
  simdgroup_matrix() = default;
  /** `diagonal` on the diagonal, 0 elsewhere. */
  METAL_SIM_INLINE explicit simdgroup_matrix(T diagonal) {
    const uint lane = metal_sim::current()->thread_index_in_simdgroup;
    const uint row = metal_sim::simdgroup_row(lane), column = metal_sim::simdgroup_column(lane);
    elements[0] = row == column ? diagonal : T(0.0f);
    elements[1] = row == column + 1 ? diagonal : T(0.0f);
  }
  METAL_SIM_INLINE storage_type& thread_elements() { return elements; }
  METAL_SIM_INLINE const storage_type& thread_elements() const { return elements; }

 private:
  storage_type elements;
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <typename T, int Columns, int Rows>
METAL_SIM_INLINE simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(identity_t<T> value) {
  simdgroup_matrix<T, Columns, Rows> m;
  m.thread_elements() = vec<T, 2>(value);
  return m;
}

template <typename T>
METAL_SIM_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const T* from, ulong elements_per_row = 8,
                                     ulong2 origin = ulong2(0), bool transpose = false, METAL_SIM_HERE) {
  metal_sim::whole_simdgroup({file, line, "simdgroup_load"});
  const uint lane = metal_sim::current()->thread_index_in_simdgroup;
  const ulong row = metal_sim::simdgroup_row(lane), column = metal_sim::simdgroup_column(lane);
  from += origin.y * elements_per_row + origin.x;
  for (uint i = 0; i < 2; ++i)
    m.thread_elements()[i] =
        transpose ? from[(column + i) * elements_per_row + row] : from[row * elements_per_row + column + i];
}

template <typename T>
METAL_SIM_INLINE void simdgroup_store(simdgroup_matrix<T, 8, 8> m, T* to, ulong elements_per_row = 8,
                                      ulong2 origin = ulong2(0), bool transpose = false, METAL_SIM_HERE) {
  metal_sim::whole_simdgroup({file, line, "simdgroup_store"});
  const uint lane = metal_sim::current()->thread_index_in_simdgroup;
  const ulong row = metal_sim::simdgroup_row(lane), column = metal_sim::simdgroup_column(lane);
  to += origin.y * elements_per_row + origin.x;
  for (uint i = 0; i < 2; ++i)
    (transpose ? to[(column + i) * elements_per_row + row] : to[row * elements_per_row + column + i]) =
        m.thread_elements()[i];
}

template <typename D, typename A, typename B, typename C>
METAL_SIM_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                                                    simdgroup_matrix<B, 8, 8> b, simdgroup_matrix<C, 8, 8> c,
                                                    METAL_SIM_HERE) {
  metal_sim::Thread* self = metal_sim::current();
  metal_sim::Exchange& shared = *self->exchange;
  const uint phase = self->phase++ & 1, lane = self->thread_index_in_simdgroup;
  const uint at = metal_sim::simdgroup_row(lane) * 8 + metal_sim::simdgroup_column(lane);
  for (uint i = 0; i < 2; ++i) {
    shared.a[phase][at + i] = float(a.thread_elements()[i]);
    shared.b[phase][at + i] = float(b.thread_elements()[i]);
    shared.c[phase][at + i] = float(c.thread_elements()[i]);
  }
  const metal_sim::Site site{file, line, "simdgroup_multiply_accumulate"};
  self->host->simdgroup_rendezvous(0, site, metal_sim::multiply_accumulate, phase);
  if (shared.active[phase] != 0xffffffffu)
    self->host->undefined(metal_sim::Undefined::kLane, site, metal_sim::kSimdgroupSize);
  for (uint i = 0; i < 2; ++i) d.thread_elements()[i] = D(shared.d[phase][at + i]);
}

template <typename D, typename A, typename B>
METAL_SIM_INLINE void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                                         simdgroup_matrix<B, 8, 8> b, METAL_SIM_HERE) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>(D(0.0f)), file, line);
}

}  // namespace metal
