// 8 × 8 matrices held by a simdgroup.
#pragma once
#include "simd.h"
#include "simdgroup_layout.h"

namespace metal_sim {

/** d = a b + c in f32, each element summed over k = 0..7 with fused multiply-adds. */
inline __attribute__((nodebug, no_sanitize("thread"))) void multiply_accumulate(Exchange& shared, uint32_t phase) {
  typedef float Row __attribute__((vector_size(32)));
  const float* a = shared.a[phase];
  Row b[8];
  __builtin_memcpy(b, shared.b[phase], sizeof b);
  for (int row = 0; row < 8; ++row, a += 8) {
    Row sum;
    __builtin_memcpy(&sum, shared.c[phase] + row * 8, sizeof sum);
    for (int k = 0; k < 8; ++k) sum = __builtin_elementwise_fma(Row{} + a[k], b[k], sum);
    __builtin_memcpy(shared.d[phase] + row * 8, &sum, sizeof sum);
  }
}

/** Two neighboring elements at once: as one access, and through no narrower stores. */
template <typename T>
METAL_SIM_INLINE void copy_pair(T* to, const T* from) {
  __builtin_memcpy(to, from, 2 * sizeof(T));
}
template <typename To, typename From>
METAL_SIM_INLINE void copy_pair(To* to, const From* from) {
  const To pair[2] = {To(from[0]), To(from[1])};
  __builtin_memcpy(to, pair, sizeof pair);
}

/** Loads and stores need all 32 lanes, and elements that are aligned: in check mode they see to it. */
template <typename T>
METAL_SIM_INLINE void matrix_access(const T* at, const Site& site) {
#ifdef METAL_SIM_CHECK
  Thread* self = current();
  const uint32_t phase = self->phase++ & 1;
  self->host->simdgroup_rendezvous(0, site, nullptr, phase);
  if (self->exchange->active[phase] != 0xffffffffu) self->host->undefined(Undefined::kLane, site, kSimdgroupSize);
  if (uintptr_t(at) % alignof(T) != 0) self->host->undefined(Undefined::kAlignment, site, uintptr_t(at));
#else
  (void)at, (void)site;
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
  metal_sim::matrix_access(from, {file, line, "simdgroup_load"});
  const uint lane = metal_sim::current()->thread_index_in_simdgroup;
  const ulong row = metal_sim::simdgroup_row(lane), column = metal_sim::simdgroup_column(lane);
  from += origin.y * elements_per_row + origin.x;
  T* const to = &m.thread_elements().x;
  if (transpose) {
    const T pair[2] = {from[column * elements_per_row + row], from[(column + 1) * elements_per_row + row]};
    metal_sim::copy_pair(to, pair);
  } else {
    metal_sim::copy_pair(to, from + row * elements_per_row + column);
  }
}

template <typename T>
METAL_SIM_INLINE void simdgroup_store(simdgroup_matrix<T, 8, 8> m, T* to, ulong elements_per_row = 8,
                                      ulong2 origin = ulong2(0), bool transpose = false, METAL_SIM_HERE) {
  metal_sim::matrix_access(to, {file, line, "simdgroup_store"});
  const uint lane = metal_sim::current()->thread_index_in_simdgroup;
  const ulong row = metal_sim::simdgroup_row(lane), column = metal_sim::simdgroup_column(lane);
  to += origin.y * elements_per_row + origin.x;
  const T* const from = &m.thread_elements().x;
  if (transpose)
    for (uint i = 0; i < 2; ++i) to[(column + i) * elements_per_row + row] = from[i];
  else
    metal_sim::copy_pair(to + row * elements_per_row + column, from);
}

template <typename D, typename A, typename B, typename C>
METAL_SIM_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                                                    simdgroup_matrix<B, 8, 8> b, simdgroup_matrix<C, 8, 8> c,
                                                    METAL_SIM_HERE) {
  metal_sim::Thread* self = metal_sim::current();
  metal_sim::Exchange& shared = *self->exchange;
  const uint phase = self->phase++ & 1, lane = self->thread_index_in_simdgroup;
  const uint at = metal_sim::simdgroup_row(lane) * 8 + metal_sim::simdgroup_column(lane);
  metal_sim::copy_pair(&shared.a[phase][at], &a.thread_elements().x);
  metal_sim::copy_pair(&shared.b[phase][at], &b.thread_elements().x);
  metal_sim::copy_pair(&shared.c[phase][at], &c.thread_elements().x);
  const metal_sim::Site site{file, line, "simdgroup_multiply_accumulate"};
  self->host->simdgroup_rendezvous(0, site, metal_sim::multiply_accumulate, phase);
  if (shared.active[phase] != 0xffffffffu)
    self->host->undefined(metal_sim::Undefined::kLane, site, metal_sim::kSimdgroupSize);
  metal_sim::copy_pair(&d.thread_elements().x, &shared.d[phase][at]);
}

template <typename D, typename A, typename B>
METAL_SIM_INLINE void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                                         simdgroup_matrix<B, 8, 8> b, METAL_SIM_HERE) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>(D(0.0f)), file, line);
}

}  // namespace metal
