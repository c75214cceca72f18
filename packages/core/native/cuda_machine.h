// What an NVIDIA GPU does that C++ has no words for, one function for each instruction, for NVRTC without CUDA headers:
// the only file with CUDA's names and with assembly. packages/metal-sim/native/shim/cuda/cuda_machine.h has the same
// functions for the simulator. All 32 lanes of a warp take part in functions of a warp.
#pragma once

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

#define MLXTS_CUDA_FUNC __device__ __forceinline__
#if __CUDA_ARCH__ >= 900
// Only a kernel whose threadgroups have a multiprocessor to themselves may move registers between its warps.
#define MLXTS_CUDA_ENTRY(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
#define MLXTS_CUDA_MEMORY_ALIGN 1024
#else
#define MLXTS_CUDA_ENTRY(threads) extern "C" __global__ void __launch_bounds__(threads)
#define MLXTS_CUDA_MEMORY_ALIGN 16
#endif
#define MLXTS_CUDA_PARAM const __grid_constant__

// Threadgroup memory: the launch says how much.
extern __shared__ __align__(MLXTS_CUDA_MEMORY_ALIGN) uint4 mlxts_threadgroup_memory[];

namespace machine {

constexpr uint kLanes = 0xffffffffu;

// Positions and sizes, x, y and z.
struct Axes {
  uint x, y, z;
};
MLXTS_CUDA_FUNC Axes threadgroup() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
MLXTS_CUDA_FUNC Axes threadgroups() { return {gridDim.x, gridDim.y, gridDim.z}; }
MLXTS_CUDA_FUNC Axes thread() { return {threadIdx.x, threadIdx.y, threadIdx.z}; }
MLXTS_CUDA_FUNC Axes threads() { return {blockDim.x, blockDim.y, blockDim.z}; }
MLXTS_CUDA_FUNC void* threadgroup_memory() { return mlxts_threadgroup_memory; }
MLXTS_CUDA_FUNC uint lane() {
  uint lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// Bits.
template <typename To, typename From>
MLXTS_CUDA_FUNC To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
MLXTS_CUDA_FUNC uint clz(uint x) { return uint(__clz(int(x))); }
MLXTS_CUDA_FUNC uint ctz(uint x) { return x == 0 ? 32 : uint(__ffs(int(x)) - 1); }
MLXTS_CUDA_FUNC uint popcount(uint x) { return uint(__popc(x)); }
MLXTS_CUDA_FUNC uint reverse_bits(uint x) { return __brev(x); }
MLXTS_CUDA_FUNC uint mulhi(uint a, uint b) { return __umulhi(a, b); }
// a & b | c in one instruction: compilers take two where b and c are constants.
MLXTS_CUDA_FUNC uint and_or(uint a, uint b, uint c) {
  uint r;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
// Four of the eight bytes of b:a, by the digits of `select`, the lowest first.
MLXTS_CUDA_FUNC uint bytes_of(uint a, uint b, uint select) { return __byte_perm(a, b, select); }

// Conversions, to nearest even; 16-bit numbers are passed as their bits. A pair has `low` in its low half.
MLXTS_CUDA_FUNC ushort f16_of(float x) {
  ushort r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
MLXTS_CUDA_FUNC float of_f16(ushort x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}
MLXTS_CUDA_FUNC ushort bf16_of(float x) {
  ushort r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
MLXTS_CUDA_FUNC uint f16_pair(float low, float high) {
  uint r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
MLXTS_CUDA_FUNC uint bf16_pair(float low, float high) {
  uint r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
// To nearest, ties away from zero.
MLXTS_CUDA_FUNC uint tf32_of(float x) {
  uint r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}
#define MLXTS_F16(name, instruction)                                  \
  MLXTS_CUDA_FUNC ushort name(ushort a, ushort b) {                   \
    ushort r;                                                         \
    asm(instruction ".f16 %0, %1, %2;" : "=h"(r) : "h"(a), "h"(b));   \
    return r;                                                         \
  }                                                                   \
  MLXTS_CUDA_FUNC uint name##_pair(uint a, uint b) {                  \
    uint r;                                                           \
    asm(instruction ".f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); \
    return r;                                                         \
  }
MLXTS_F16(f16_add, "add.rn")
MLXTS_F16(f16_subtract, "sub.rn")
MLXTS_F16(f16_multiply, "mul.rn")
#undef MLXTS_F16
MLXTS_CUDA_FUNC uint f16_fma_pair(uint a, uint b, uint c) {
  uint r;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
MLXTS_CUDA_FUNC uint bf16_fma_pair(uint a, uint b, uint c) {
  uint r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}

// Functions of f32, as precise as CUDA has them.
MLXTS_CUDA_FUNC float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
MLXTS_CUDA_FUNC float sqrt(float x) { return __fsqrt_rn(x); }
MLXTS_CUDA_FUNC float rsqrt(float x) { return __frcp_rn(__fsqrt_rn(x)); }
#define MLXTS_F32(name) \
  MLXTS_CUDA_FUNC float name(float x) { return name##f(x); }
MLXTS_F32(exp)
MLXTS_F32(exp2)
MLXTS_F32(exp10)
MLXTS_F32(log)
MLXTS_F32(log2)
MLXTS_F32(log10)
MLXTS_F32(sin)
MLXTS_F32(cos)
MLXTS_F32(tan)
MLXTS_F32(tanh)
MLXTS_F32(round)
MLXTS_F32(rint)
MLXTS_F32(floor)
MLXTS_F32(ceil)
MLXTS_F32(trunc)
MLXTS_F32(fabs)
#undef MLXTS_F32
// 2 to the power of x as the GPU computes it itself, to two units of the last place; results below 1.2e-38 are 0.
MLXTS_CUDA_FUNC float exp2_fast(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
// 1 / x as the GPU computes it itself, to one unit of the last place; x and results below 1.2e-38 are 0.
MLXTS_CUDA_FUNC float reciprocal_fast(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
#define MLXTS_F32(name) \
  MLXTS_CUDA_FUNC float name(float x, float y) { return name##f(x, y); }
MLXTS_F32(pow)
MLXTS_F32(fmod)
MLXTS_F32(fmin)
MLXTS_F32(fmax)
MLXTS_F32(copysign)
#undef MLXTS_F32

// Barriers: of a block, and of a warp.
MLXTS_CUDA_FUNC void threadgroup_barrier() { __syncthreads(); }
MLXTS_CUDA_FUNC void simdgroup_barrier() { __syncwarp(); }

// Waits for the kernels that this one depends on, and lets those be launched that depend on it. Before it a kernel reads
// only what its declaration calls `early`. GPUs of compute capability 9.0 take what follows "// sm_90: "
// (cuda_device.cpp), others nothing: their kernels begin when those have ended.
MLXTS_CUDA_FUNC void wait_for_kernels() {
  asm volatile("// sm_90: griddepcontrol.wait; griddepcontrol.launch_dependents;" : : : "memory");
}
// The same when `known` has been computed: a compiler would rather wait first. Any number would do for the comparison.
MLXTS_CUDA_FUNC void wait_for_kernels(uint known) {
  asm volatile(
      "{\n\t.reg .pred rare;\n\tsetp.eq.b32 rare, %0, 0x9e3779b9;\n\t"
      "// sm_90: @rare griddepcontrol.wait; @!rare griddepcontrol.wait; griddepcontrol.launch_dependents;\n\t}"
      :
      : "r"(known)
      : "memory");
}

// What the lanes of a warp tell each other. A lane without a neighbor keeps its own value.
MLXTS_CUDA_FUNC uint shuffle(uint x, uint lane) { return __shfl_sync(kLanes, x, int(lane)); }
MLXTS_CUDA_FUNC uint shuffle_xor(uint x, uint by) { return __shfl_xor_sync(kLanes, x, int(by)); }
MLXTS_CUDA_FUNC uint shuffle_up(uint x, uint by) { return __shfl_up_sync(kLanes, x, by); }
MLXTS_CUDA_FUNC uint shuffle_down(uint x, uint by) { return __shfl_down_sync(kLanes, x, by); }
MLXTS_CUDA_FUNC uint ballot(bool x) { return __ballot_sync(kLanes, x); }
MLXTS_CUDA_FUNC uint reduce_add(uint x) { return __reduce_add_sync(kLanes, x); }
MLXTS_CUDA_FUNC uint reduce_min(uint x) { return __reduce_min_sync(kLanes, x); }
MLXTS_CUDA_FUNC uint reduce_max(uint x) { return __reduce_max_sync(kLanes, x); }

// Relaxed atomics on device and threadgroup memory; each gives what was there before.
MLXTS_CUDA_FUNC uint atomic_load(const volatile uint* at) {
  uint r;
  asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(r) : "l"(at) : "memory");
  return r;
}
MLXTS_CUDA_FUNC void atomic_store(volatile uint* at, uint x) {
  asm volatile("st.relaxed.gpu.u32 [%0], %1;" : : "l"(at), "r"(x) : "memory");
}
MLXTS_CUDA_FUNC uint atomic_exchange(volatile uint* at, uint x) { return atomicExch((uint*)at, x); }
MLXTS_CUDA_FUNC uint atomic_add(volatile uint* at, uint x) { return atomicAdd((uint*)at, x); }
MLXTS_CUDA_FUNC uint atomic_and(volatile uint* at, uint x) { return atomicAnd((uint*)at, x); }
MLXTS_CUDA_FUNC uint atomic_or(volatile uint* at, uint x) { return atomicOr((uint*)at, x); }
MLXTS_CUDA_FUNC uint atomic_xor(volatile uint* at, uint x) { return atomicXor((uint*)at, x); }
MLXTS_CUDA_FUNC uint atomic_min(volatile uint* at, uint x) { return atomicMin((uint*)at, x); }
MLXTS_CUDA_FUNC uint atomic_max(volatile uint* at, uint x) { return atomicMax((uint*)at, x); }
MLXTS_CUDA_FUNC int atomic_min(volatile int* at, int x) { return atomicMin((int*)at, x); }
MLXTS_CUDA_FUNC int atomic_max(volatile int* at, int x) { return atomicMax((int*)at, x); }
MLXTS_CUDA_FUNC uint atomic_compare_exchange(volatile uint* at, uint expected, uint x) {
  return atomicCAS((uint*)at, expected, x);
}

// Products of matrices: d += a · b, sums in f32. With g = lane / 4 and j = lane % 4 a lane holds of a 16 × 8 matrix of
// sums the elements [g][2 j], [g][2 j + 1], [g + 8][2 j], [g + 8][2 j + 1].
// a: [16, 8] of tf32 as [g][j], [g + 8][j], [g][j + 4], [g + 8][j + 4]; b: [8, 8] as [j][g], [j + 4][g].
MLXTS_CUDA_FUNC void mma_tf32_k8(float (&d)[4], uint a0, uint a1, uint a2, uint a3, uint b0, uint b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// a: [16, 8] of 16-bit floats, pairs [g][2 j …], [g + 8][2 j …]; b: [8, 8], the pair [2 j …][g].
// k16: a: [16, 16], pairs [g][2 j …], [g + 8][2 j …], [g][2 j + 8 …], [g + 8][2 j + 8 …]; b: [2 j …][g], [2 j + 8
// …][g].
#define MLXTS_MMA16(type)                                                                                     \
  MLXTS_CUDA_FUNC void mma_##type##_k8(float(&d)[4], uint a0, uint a1, uint b0) {                             \
    asm("mma.sync.aligned.m16n8k8.row.col.f32." #type "." #type                                               \
        ".f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "                                                                 \
        "{%0,%1,%2,%3};"                                                                                      \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                      \
        : "r"(a0), "r"(a1), "r"(b0));                                                                         \
  }                                                                                                           \
  MLXTS_CUDA_FUNC void mma_##type##_k16(float(&d)[4], uint a0, uint a1, uint a2, uint a3, uint b0, uint b1) { \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." #type "." #type                                              \
        ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "                                                        \
        "{%0,%1,%2,%3};"                                                                                      \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                      \
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                                              \
  }
MLXTS_MMA16(f16)
MLXTS_MMA16(bf16)
#undef MLXTS_MMA16
// The same of bytes: d [16, 8] += a [16, 32] · b [32, 8], a without signs, b with, sums of 32 bits. a: four neighbors
// [g][4 j …], [g + 8][4 j …], [g][4 j + 16 …], [g + 8][4 j + 16 …]; b: [4 j …][g], [4 j + 16 …][g].
MLXTS_CUDA_FUNC void mma_bytes_k32(int (&d)[4], uint a0, uint a1, uint a2, uint a3, uint b0, uint b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// An 8 × 8 matrix of 16-bit elements, of which a lane holds the pair [lane / 4][lane % 4 * 2 …], transposed.
MLXTS_CUDA_FUNC uint transposed16(uint pair) {
  uint r;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(pair));
  return r;
}

MLXTS_CUDA_FUNC uint threadgroup_address(const void* at) { return uint(__cvta_generic_to_shared(at)); }

// 8 × 8 matrices of 16-bit elements from threadgroup memory; a lane gets the pair [lane / 4][lane % 4 * 2 …] of each,
// transposed: of the transposed matrix. Lane 8 i + r names row r of matrix i, at a multiple of 16 bytes.
#define MLXTS_LOAD_MATRICES(name, modifier)                                                  \
  MLXTS_CUDA_FUNC void name(uint& m0, const void* row) {                                     \
    asm volatile("ldmatrix.sync.aligned.m8n8.x1" modifier ".shared.b16 {%0}, [%1];"          \
                 : "=r"(m0)                                                                  \
                 : "r"(threadgroup_address(row))                                             \
                 : "memory");                                                                \
  }                                                                                          \
  MLXTS_CUDA_FUNC void name(uint& m0, uint& m1, const void* row) {                           \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" modifier ".shared.b16 {%0,%1}, [%2];"       \
                 : "=r"(m0), "=r"(m1)                                                        \
                 : "r"(threadgroup_address(row))                                             \
                 : "memory");                                                                \
  }                                                                                          \
  MLXTS_CUDA_FUNC void name(uint& m0, uint& m1, uint& m2, uint& m3, const void* row) {       \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" modifier ".shared.b16 {%0,%1,%2,%3}, [%4];" \
                 : "=r"(m0), "=r"(m1), "=r"(m2), "=r"(m3)                                    \
                 : "r"(threadgroup_address(row))                                             \
                 : "memory");                                                                \
  }
MLXTS_LOAD_MATRICES(load_matrices, "")
MLXTS_LOAD_MATRICES(load_matrices_transposed, ".trans")
#undef MLXTS_LOAD_MATRICES
// The way back: four matrices to the rows that lanes name. Only for compute capability 9.0.
#define MLXTS_STORE_MATRICES(name, modifier)                                                        \
  MLXTS_CUDA_FUNC void name(void* row, const uint (&m)[4]) {                                         \
    asm volatile("stmatrix.sync.aligned.m8n8.x4" modifier ".shared.b16 [%0], {%1,%2,%3,%4};"         \
                 :                                                                                   \
                 : "r"(threadgroup_address(row)), "r"(m[0]), "r"(m[1]), "r"(m[2]), "r"(m[3])         \
                 : "memory");                                                                        \
  }
MLXTS_STORE_MATRICES(store_matrices, "")
MLXTS_STORE_MATRICES(store_matrices_transposed, ".trans")
#undef MLXTS_STORE_MATRICES

// Copies Bytes (4, 8 or 16) to threadgroup memory without registers: the first `count` bytes of `from`, zeros for the
// others. Both lie at multiples of Bytes. What a thread has copied since its last copies_end is one group; it has
// arrived for this thread after copies_wait<n>, where n counts the later groups that may still be on their way.
template <uint Bytes>
MLXTS_CUDA_FUNC void copy_start(void* to, const void* from, uint count = Bytes) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "a copy has 4, 8 or 16 bytes");
  if (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(threadgroup_address(to)), "l"(from), "r"(count)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"(threadgroup_address(to)), "l"(from), "n"(Bytes == 16 ? 8 : Bytes), "r"(count)
                 : "memory");
}
// The same of sixteen bytes that are read once, as weights are: they leave the second cache before others do. What lies
// beside them in 128 bytes is read soon.
MLXTS_CUDA_FUNC void copy_once(void* to, const void* from) {
  ulong policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2;"
               :
               : "r"(threadgroup_address(to)), "l"(from), "l"(policy)
               : "memory");
}
MLXTS_CUDA_FUNC void copies_end() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <uint Later>
MLXTS_CUDA_FUNC void copies_wait() {
  asm volatile("cp.async.wait_group %0;" : : "n"(Later) : "memory");
}

// Products of a warpgroup, four warps that begin at a multiple of four: d [64, N] += a [64, 16] · b [16, N], sums in
// f32. A warp has 16 rows of a and d, as with mma_bf16_k16. b lies in threadgroup memory, transposed: N rows of 128
// bytes, of which it has 32, from a multiple of 1024 bytes on, with piece p of 16 bytes of row r at p ^ r % 8. Products
// go on beside what the warps do: what has begun since the last warpgroup_end is one group, and of these all but the
// last `Later` are done after warpgroup_wait. Until then d and a stay as they are, which the compiler is told by
// `held`, and so does b. Only for compute capability 9.0 (compute_90a).
// ptxas waits after each product (its remark C7514) where sums are read while others are under way that a loop or a
// branch began: all that a turn of a loop begins ends in it. Sums that stay from turn to turn may be read beside others
// (remark C7517) if the turn begins with a wait, too.
MLXTS_CUDA_FUNC ulong warpgroup_operand(const void* b) {
  return ulong(threadgroup_address(b) >> 4) | 1ul << 16 | 64ul << 32 | 1ul << 62;
}
// The same of an operand that lies as it is, 16 rows of N = 128 elements: halves of a row lie in two tiles of 64
// elements a row, `next` bytes apart.
MLXTS_CUDA_FUNC ulong warpgroup_rows(const void* b, uint next) {
  return ulong(threadgroup_address(b) >> 4) | ulong(next >> 4) << 16 | 64ul << 32 | 1ul << 62;
}
MLXTS_CUDA_FUNC void held(float& x) { asm volatile("" : "+f"(x) : : "memory"); }
MLXTS_CUDA_FUNC void held(uint& x) { asm volatile("" : "+r"(x) : : "memory"); }
template <typename T, uint Count>
MLXTS_CUDA_FUNC void held(T (&x)[Count]) {
#pragma unroll
  for (uint i = 0; i < Count; ++i) held(x[i]);
}
// Where x is computed at the latest. ptxas moves what only registers see to where it is used, past barriers and waits,
// but no store past a barrier: this one, to 16 bytes at `anywhere`, never happens, which only the caller knows.
template <uint Count>
MLXTS_CUDA_FUNC void settled(const uint (&x)[Count][4], void* anywhere, bool never) {
#pragma unroll
  for (uint i = 0; i < Count; ++i)
    asm volatile("{.reg .pred now; setp.ne.b32 now, %5, 0; @now st.shared.v4.b32 [%0], {%1, %2, %3, %4};}"
                 :
                 : "r"(threadgroup_address(anywhere)), "r"(x[i][0]), "r"(x[i][1]), "r"(x[i][2]), "r"(x[i][3]),
                   "r"(uint(never))
                 : "memory");
}
// After what was written to d and a, before the products.
MLXTS_CUDA_FUNC void warpgroup_begin() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
MLXTS_CUDA_FUNC void warpgroup_end() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
template <uint Later>
MLXTS_CUDA_FUNC void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(Later) : "memory");
}
#define MLXTS_D(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define MLXTS_D8(i)                                                                                           \
  MLXTS_D(i), MLXTS_D(i + 1), MLXTS_D(i + 2), MLXTS_D(i + 3), MLXTS_D(i + 4), MLXTS_D(i + 5), MLXTS_D(i + 6), \
      MLXTS_D(i + 7)
// The registers of so many sums.
#define MLXTS_N32                                                    \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18," \
  "%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define MLXTS_N64                                                      \
  MLXTS_N32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45," \
            "%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define MLXTS_N128                                                                                            \
  MLXTS_N64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87," \
            "%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,"     \
            "%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
// Without `add` d is what the product gives.
MLXTS_CUDA_FUNC void warpgroup_bf16_k16(float (&d)[2][4], const uint (&a)[4], ulong b, bool add) {
  asm volatile(
      "{.reg .pred add; setp.ne.b32 add, %13, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7"
      "}, {%8,%9,%10,%11}, %12, add, 1, 1, 0;}"
      : MLXTS_D(0), MLXTS_D(1)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)));
}
MLXTS_CUDA_FUNC void warpgroup_bf16_k16(float (&d)[4][4], const uint (&a)[4], ulong b, bool add) {
  asm volatile(
      "{.reg .pred add; setp.ne.b32 add, %21, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
      "}, {%16,%17,%18,%19}, %20, add, 1, 1, 0;}"
      : MLXTS_D(0), MLXTS_D(1), MLXTS_D(2), MLXTS_D(3)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)));
}
MLXTS_CUDA_FUNC void warpgroup_bf16_k16(float (&d)[6][4], const uint (&a)[4], ulong b, bool add) {
  asm volatile(
      "{.reg .pred add; setp.ne.b32 add, %29, 0; wgmma.mma_async.sync.aligned.m64n48k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23"
      "}, {%24,%25,%26,%27}, %28, add, 1, 1, 0;}"
      : MLXTS_D(0), MLXTS_D(1), MLXTS_D(2), MLXTS_D(3), MLXTS_D(4), MLXTS_D(5)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)));
}
MLXTS_CUDA_FUNC void warpgroup_bf16_k16(float (&d)[8][4], const uint (&a)[4], ulong b, bool add) {
  asm volatile(
      "{.reg .pred add; setp.ne.b32 add, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" MLXTS_N32
      "}, {%32,%33,%34,%35}, %36, add, 1, 1, 0;}"
      : MLXTS_D8(0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)));
}
MLXTS_CUDA_FUNC void warpgroup_bf16_k16(float (&d)[16][4], const uint (&a)[4], ulong b, bool add) {
  asm volatile(
      "{.reg .pred add; setp.ne.b32 add, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" MLXTS_N64
      "}, {%64,%65,%66,%67}, %68, add, 1, 1, 0;}"
      : MLXTS_D8(0), MLXTS_D8(8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)));
}
// d += a · b, where b is of warpgroup_rows.
MLXTS_CUDA_FUNC void warpgroup_bf16_k16_rows(float (&d)[16][4], const uint (&a)[4], ulong b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" MLXTS_N64
      "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
      : MLXTS_D8(0), MLXTS_D8(8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// d with a in threadgroup memory, where its 64 rows lie as those of b do.
MLXTS_CUDA_FUNC void warpgroup_bf16_k16(float (&d)[4], ulong a, ulong b, bool add) {
  asm volatile(
      "{.reg .pred add; setp.ne.b32 add, %6, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3}, %4, %5, add, 1, 1, 0, 0;}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b), "r"(int(add)));
}
MLXTS_CUDA_FUNC void warpgroup_bf16_k16(float (&d)[8][4], ulong a, ulong b, bool add) {
  asm volatile(
      "{.reg .pred add; setp.ne.b32 add, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" MLXTS_N32
      "}, %32, %33, add, 1, 1, 0, 0;}"
      : MLXTS_D8(0)
      : "l"(a), "l"(b), "r"(int(add)));
}
MLXTS_CUDA_FUNC void warpgroup_bf16_k16(float (&d)[16][4], ulong a, ulong b, bool add) {
  asm volatile(
      "{.reg .pred add; setp.ne.b32 add, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" MLXTS_N64
      "}, %64, %65, add, 1, 1, 0, 0;}"
      : MLXTS_D8(0), MLXTS_D8(8)
      : "l"(a), "l"(b), "r"(int(add)));
}
MLXTS_CUDA_FUNC void warpgroup_bf16_k16(float (&d)[32][4], ulong a, ulong b, bool add) {
  asm volatile(
      "{.reg .pred add; setp.ne.b32 add, %130, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" MLXTS_N128
      "}, %128, %129, add, 1, 1, 0, 0;}"
      : MLXTS_D8(0), MLXTS_D8(8), MLXTS_D8(16), MLXTS_D8(24)
      : "l"(a), "l"(b), "r"(int(add)));
}
#undef MLXTS_D
#undef MLXTS_D8
#undef MLXTS_N32
#undef MLXTS_N64
#undef MLXTS_N128
// What this thread has written to threadgroup memory is there for warpgroups' products after the next barrier.
MLXTS_CUDA_FUNC void warpgroup_operands_written() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }
// Where all `Threads` of a block meet that run parts of a program of their own: each at an instruction of its own, which
// an aligned barrier does not allow.
template <uint Threads>
MLXTS_CUDA_FUNC void parts_meet() {
  asm volatile("barrier.cta.sync 1, %0;" : : "n"(Threads) : "memory");
}
// Registers that a warpgroup gives back, or takes of those that others have given back.
template <uint Count>
MLXTS_CUDA_FUNC void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(Count));
}
template <uint Count>
MLXTS_CUDA_FUNC void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(Count));
}

}  // namespace machine
