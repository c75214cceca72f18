import { withClang } from "@mlxts/test-kit/clang";
import { expect, it } from "vitest";
import { lint } from "../src/index.ts";

const HEAD = "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\nusing namespace metal;\n#line 1\n";
const TYPES = ["float", "half", "bfloat"];
const instances = (name: string, types: readonly string[]) =>
  types
    .map((T) => `template [[host_name("${name}_${T}")]] [[kernel]] decltype(${name}<${T}>) ${name}<${T}>;\n`)
    .join("");

const findings = (text: string) =>
  lint({ path: "k.metal", text: HEAD + text }).map(({ line, kind, message }) => `${line}: ${kind}: ${message}`);

const WRONG = `template <typename T> METAL_FUNC float first(device const T* p) { return float(p[0]); }
template <typename T> METAL_FUNC void fill(thread T& to, T v) { to = v; }
template <typename T> METAL_FUNC void store(device T* to, float v) { to[0] = T(v); }
template <typename T> METAL_FUNC float deeper(threadgroup T* p) {
  return first(p);
}
template <typename T> struct View { threadgroup T* at; };
template <typename T> struct Tile {
  T held;
  METAL_FUNC void load(device const T* from) thread { held = from[0]; }
};
template <typename T>
kernel void wrong(device T* out [[buffer(0)]], threadgroup T* m [[threadgroup(0)]],
                  uint i [[thread_index_in_threadgroup]]) {
  store((threadgroup T*)m, 1.0f);
  View<T> view = {out};
  view.at = out + 1;
  Tile<T> tile;
  tile.load(m);
  fill(out[1], T(2));
  T own[2] = {};
  out[2] = T(first(own) + deeper(m));
  device T* either = i > 1 ? out : m;
  T* nowhere = out;
  device vec<T, 4>* four = (device vec<T, 4>*)m;
  out[3] = either[0] + nowhere[0] + view.at[0] + tile.held + four[0].x;
}
`;

/** What is wrong of each line; the words of a message name one of the instances. */
const FOUND = [
  "5: address-space: no matching function for call to 'first'",
  "15: address-space: no matching function for call to 'store'",
  "16: address-space: cannot initialize a member subobject of type 'threadgroup T *' " +
    "with an lvalue of type 'device T *'",
  "17: address-space: assigning 'device T *' to 'threadgroup T *' changes address space of pointer",
  "19: address-space: cannot initialize a parameter of type 'const device T *' " +
    "with an lvalue of type 'threadgroup T *'",
  "20: address-space: no matching function for call to 'fill'",
  "22: address-space: no matching function for call to 'first'",
  "23: address-space: incompatible operand types ('device T *' and 'threadgroup T *')",
  "24: address-space: cannot initialize a variable of type 'thread T *' with an lvalue of type 'device T *'",
  "25: address-space: C-style cast from 'threadgroup T *' to 'device vec<T, 4> *' " +
    "converts between mismatching address spaces",
];

const LEGAL = `template <typename T> struct Pair {
  T a, b;
  METAL_FUNC float sum() const thread { return float(a) + float(b); }
};
template <typename T> METAL_FUNC float first(device const T* p) { return float(p[0]); }
template <typename T> METAL_FUNC float first_constant(constant T* p) { return float(p[0]) + float(p[1]) * 2.0f; }
template <typename T> METAL_FUNC float first_shared(threadgroup const T* p) { return float(p[0]); }
template <typename T> METAL_FUNC void keep(thread T& to, T v) { to = v; }
template <typename T> METAL_FUNC T pick(bool c, T a, T b) { return c ? a : b; }
template <typename P> METAL_FUNC float anywhere(P p) { return float(*p); }
template <typename T>
kernel void legal(device T* out [[buffer(0)]], constant T* c [[buffer(1)]], constant vec<T, 4>& cv [[buffer(2)]],
                  device const packed_vec<T, 4>* packed [[buffer(3)]], device Pair<T>* pairs [[buffer(4)]],
                  threadgroup T* m [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
  T own[2] = {}, held = out[i];
  const T fixed = c[i];
  keep(held, c[1]);
  keep(own[0], T(first(out) + first_constant(c) + first_shared(m + i)));
  own[1] = anywhere(out) + anywhere(c) + anywhere(m) + anywhere(&held);
  const vec<T, 4> v = vec<T, 4>(packed[i]), w = cv;
  *(device vec<T, 4>*)(out + 4) = v + w * *(threadgroup vec<T, 4>*)(m + 4);
  const vec<T, 4> chosen = i > 1 ? v : v * vec<T, 4>(T(2.0f));
  T value = i > 2 ? fixed : out[3];
  value = i > 2 ? out[3] : c[2];
  value += c[2], value -= m[1], value *= 2, value /= held;
  out[2] += value * c[1] - m[3];
  Pair<T> pair = pairs[i];
  pair.a = pick(i > 2, pair.b, held);
  pairs[i] = pair;
  pairs[i].b = c[2];
  simdgroup_matrix<T, 8, 8> left, right;
  simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_load(left, m, 8);
  simdgroup_load(right, out, 8);
  simdgroup_multiply_accumulate(sum, left, right, sum);
  simdgroup_store(sum, (threadgroup float*)m, 8);
  out[i] = max(simd_sum(fma(held, fixed, value)), T(pair.sum() + float(chosen.x) + float(own[1])));
}
`;

withClang("lint of template instances", () => {
  it.each(TYPES)("finds address spaces that are wrong only in an instance: %s", (T) => {
    const expected = FOUND.map((finding) => finding.replace(/\bT\b/g, T));
    expect(findings(WRONG + instances("wrong", [T]))).toEqual(expected);
  });

  it("finds them once for all instances, and none without instances", () => {
    expect(findings(WRONG + instances("wrong", TYPES)).map((finding) => finding.split(":")[0])).toEqual(
      FOUND.map((finding) => finding.split(":")[0]),
    );
    expect(findings(WRONG)).toEqual([]);
  });

  it("accepts what is legal in every type", () => {
    expect(findings(LEGAL + instances("legal", TYPES))).toEqual([]);
  });

  it("looks into instances of every form, in namespaces too", () => {
    const head = "device T* out [[buffer(0)]], threadgroup float* m [[threadgroup(0)]]";
    const text = `template <typename T> METAL_FUNC void put(device T* to, T v) { to[0] = v; }
namespace a {
template <typename T, uint N = 1> kernel void f(${head}) {
  put(m, float(out[N]));
}
template <typename T> kernel void g(${head}) {
  put(m + 1, float(out[0]));
}
template [[host_name("f")]] [[kernel]] decltype(f<half>) f<half>;
}
template [[host_name("f2")]] kernel decltype(a::f<half, 2>) a::f<half, 2>;
namespace a {
template [[host_name("g")]] [[kernel]] void g<bfloat>(${head.replace("T*", "bfloat*")});
}
`;
    expect(findings(text)).toEqual([
      "4: address-space: no matching function for call to 'put'",
      "7: address-space: no matching function for call to 'put'",
    ]);
  });

  it("finds a parameter without address space that is given a pointer", () => {
    const text = `METAL_FUNC float bare(const float* p) { return p[0]; }
kernel void k(device float* out [[buffer(0)]]) {
  float own[2] = {};
  out[0] = bare(own);
  out[1] = bare(out);
}
`;
    expect(findings(text)).toEqual(["5: address-space: no matching function for call to 'bare'"]);
  });

  it("accepts `?:` between values, and not between pointers", () => {
    const text = `METAL_FUNC float4 gate(float4 z, bool square) {
  const float4 one = 1.0f + z;
  return square ? one : z * one;
}
kernel void k(device float* out [[buffer(0)]], threadgroup float* m [[threadgroup(0)]]) {
  out[0] = gate(float4(1.0f), true).x;
  m[0] = *(out[0] > 1.0f ? out : m);
}
`;
    const found = findings(text);
    expect(found.map((finding) => finding.slice(0, 16))).toEqual(["7: address-space"]);
  });
});
