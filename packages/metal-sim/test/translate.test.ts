import { describe, expect, it } from "vitest";
import { MetalSimError } from "../src/index.ts";
import { tokenize, unparse } from "../src/tokens.ts";
import { translate } from "../src/translate.ts";

const STDLIB = "#pragma metal_sim_include metal_stdlib\n";

/** Text as the preprocessor leaves it, its first line being line 1 of a.metal. */
const preprocessed = (text: string, includes = STDLIB) => `${includes}# 1 "a.metal" 1\n${text}`;

function refusalsOf(text: string, includes?: string): string[] {
  try {
    translate(preprocessed(text, includes));
  } catch (error) {
    if (error instanceof MetalSimError && error.code === "Untranslatable") return error.message.split("\n");
    throw error;
  }
  return [];
}

const body = (text: string) => `kernel void k(device float* x [[buffer(0)]]) {\n${text}\n}`;
const parameter = (text: string) => `kernel void k(${text}) {}`;

describe("refusals, to the letter", () => {
  const cases: [text: string, message: string][] = [
    [body("double d;"), "a.metal:2: `double` does not exist in MSL"],
    [body("auto f = [](int i) { return i; };"), "a.metal:2: `[…]` is a lambda expression, which MSL does not have"],
    ["constant bool fast [[function_constant(0)]];", "a.metal:1: `[[function_constant(0)]]` is not simulated"],
    [
      body("float4 v; v.xy = 1;"),
      "a.metal:2: `.xy` accesses several components: outside the subset, access components one by one",
    ],
    [
      parameter("constant texture2d<float>& t [[buffer(0)]]"),
      "a.metal:1: `texture2d` is not simulated: textures are outside the subset",
    ],
    [
      parameter("device atomic_float* a [[buffer(0)]]"),
      "a.metal:1: `atomic_float` is not simulated: atomics hold int or uint",
    ],
    [body("float v = 1.0L;"), "a.metal:2: `1.0L` is not a literal of MSL"],
    [body("static int n = 0;"), "a.metal:2: `static` variables in functions do not exist in MSL"],
    ["int counter;", "a.metal:1: `int counter` is a variable at file scope: those must be `constant`"],
    [
      "threadgroup float tile[4];",
      "a.metal:1: `threadgroup float tile[` is a threadgroup variable outside a kernel's body",
    ],
    [
      "void f() {\nthreadgroup float tile[4];\n}",
      "a.metal:2: `threadgroup float tile[` is a threadgroup variable outside a kernel's body",
    ],
    [
      body("threadgroup float tile[2] = {1, 2};"),
      "a.metal:2: `threadgroup float tile` must be declared without an initializer",
    ],
    [
      body("float threadgroup tile[2];"),
      "a.metal:2: `threadgroup tile[2` cannot be classified: a pointer, a reference or a plain variable is expected",
    ],
    [
      body("const threadgroup float tile[2];"),
      "a.metal:2: `threadgroup float tile[` cannot be classified: the declaration must start with `threadgroup`",
    ],
    [
      body("device float y;"),
      "a.metal:2: `device float y;` cannot be classified: a pointer, a reference or a plain variable is expected",
    ],
    [body("float* threadgroup p;"), "a.metal:2: `threadgroup` behind `*` would place the pointer itself there"],
    [
      body("constant float y = 1;"),
      "a.metal:2: `constant float y =` is a constant variable in a function: those stand at file scope",
    ],
    [
      parameter("device float* x"),
      "a.metal:1: `device float* x` has no attribute: [[buffer(n)]], [[threadgroup(n)]] or a builtin is expected",
    ],
    [
      parameter("float x [[buffer(0)]]"),
      "a.metal:1: `float x` must be a pointer or reference to device or constant memory: it is [[buffer(0)]]",
    ],
    [
      parameter("device float* x [[threadgroup(0)]]"),
      "a.metal:1: `device float* x` must be a pointer or reference to threadgroup memory: it is [[threadgroup(0)]]",
    ],
    [parameter("device float* x [[buffer(N)]]"), "a.metal:1: `[[buffer(N)]]` must have a literal index from 0 to 30"],
    [parameter("device float* x [[buffer(31)]]"), "a.metal:1: `[[buffer(31)]]` must have a literal index from 0 to 30"],
    [
      parameter("device float* x [[buffer(1)]], device float* y [[buffer(1)]]"),
      "a.metal:1: `[[buffer(1)]]` is taken by `x`",
    ],
    [parameter("uint i [[amplification_id]]"), "a.metal:1: `[[amplification_id]]` is not simulated"],
    [
      parameter("device uint* i [[thread_position_in_grid]]"),
      "a.metal:1: `device uint* i` must be a value: it is [[thread_position_in_grid]]",
    ],
    [
      "kernel int k(device float* x [[buffer(0)]]) { return 0; }",
      "a.metal:1: `kernel int k(device float* x` is not a kernel: `kernel void name(…)` is expected",
    ],
    [
      "template <typename T> kernel void k(device T* x [[buffer(0)]]) {}\ntemplate kernel void k<float>(device float*);",
      "a.metal:2: `k<float>` has no [[host_name(…)]], so nothing can find it",
    ],
    [
      'template [[host_name("a")]] [[kernel]] decltype(k<float>) k<float>;',
      'a.metal:1: `template [[host_name("a")]] [[kernel]] decltype(k<float>) k<float>` does not name an instance of a kernel template',
    ],
    [`${parameter("")}\n${parameter("")}`, "a.metal:2: `k` names a second kernel; the first is at line 1"],
    [
      "[[kernel, max_total_threads_per_threadgroup(N)]] void k() {}",
      "a.metal:1: `max_total_threads_per_threadgroup(N)` must give a literal number",
    ],
    [body("simdgroup_matrix<float, 8, 8> m;"), "a.metal:2: `simdgroup_matrix` needs #include <metal_simdgroup_matrix>"],
    [body("atomic_thread_fence(0);"), "a.metal:2: `atomic_thread_fence` is not simulated: use barriers"],
    [body("int metal_sim_x;"), "a.metal:2: `metal_sim_x` is a name of the simulator"],
    ["struct S { int a [[id(0)]]; };", "a.metal:1: `[[id(0)]]` is not simulated"],
  ];
  for (const [text, message] of cases) it(message, () => expect(refusalsOf(text)).toEqual([message]));

  it("a missing include", () => {
    expect(refusalsOf(body(""), "")).toEqual(["a.metal:1: `#include <metal_stdlib>` is missing"]);
  });

  it("tells all of them, in order of lines", () => {
    expect(refusalsOf(body("double d;\nthread float v = 1.0L;\ngoto end;"))).toEqual([
      "a.metal:2: `double` does not exist in MSL",
      "a.metal:3: `1.0L` is not a literal of MSL",
      "a.metal:4: `goto` does not exist in MSL",
    ]);
  });
});

describe("translation", () => {
  /** The line of the translation that stands for a line of the source. */
  function translated(text: string, line = 2): string {
    const out = translate(preprocessed(text)).text;
    return out.split("\n")[out.split("\n").findIndex((l) => l.startsWith("# 1 ")) + line]?.trim() ?? "";
  }

  it("keeps lines and gives literals MSL's types", () => {
    expect(translated(body("float a = 1.5 + 2e3 + 0x1p-3 + 1.f + .5h + 3 + 0x1e + 7u;"))).toBe(
      "float a = 1.5f + 2e3f + 0x1p-3f + 1.f + .5h + 3 + 0x1e + 7u;",
    );
  });

  it("takes qualifiers away where they qualify pointers, and keeps what is constant", () => {
    expect(translated(body("device const float4* p = (device const float4*)(x + 1);"))).toBe(
      "const float4* p = ( const float4*)(x + 1);",
    );
    expect(translated("constant float k[2] = {1, 2};", 1)).toBe("static const float k[2] = {1, 2};");
    expect(translated("inline float f(constant float& a, thread float& b) { return a; }", 1)).toBe(
      "inline float f(const float& a,  float& b) { return a; }",
    );
  });

  it("gives threadgroup variables storage of the threadgroup's", () => {
    expect(translated(body("threadgroup float tile[4][8], one;"))).toBe(
      'float (&tile)[4][8] = ::metal_sim::threadgroup_variable<float[4][8], 0>("tile");  float (&one) = ' +
        '::metal_sim::threadgroup_variable<float, 1>("one");',
    );
  });

  it("finds kernels in namespaces and their instances", () => {
    const text = `namespace a { namespace b {
template <typename T, int N = 4> kernel void k(device vec<T, N>* x [[buffer(2)]]) {}
template [[host_name("k_" "half")]] kernel void k<half>(device vec<half, 4>*);
} }`;
    expect(translate(preprocessed(text)).kernels).toEqual([
      {
        name: "k_half",
        callee: "::a::b::k<half>",
        file: "a.metal",
        line: 3,
        arguments: [
          {
            name: "x",
            kind: "buffer",
            attribute: "buffer(2)",
            type: "vec<half, 4>",
            index: 2,
            space: "device",
            readOnly: false,
            indirection: "pointer",
          },
        ],
      },
    ]);
  });

  it("leaves out what metal_sim_only does not name", () => {
    const text = `template <typename T> kernel void k(device T* x [[buffer(0)]]) {}
template [[host_name("k_f32")]] kernel void k<float>(device float*);
template [[host_name("k_f16")]] kernel void k<half>(device half*);
template [[host_name("k_i32")]] kernel void k<int>(device int*);
#pragma metal_sim_only k_f32 k_i32
`;
    const found = translate(preprocessed(text));
    expect(found.kernels.map(({ name }) => name)).toEqual(["k_f32", "k_i32"]);
    expect(found.text).not.toContain("half");
    expect(found.text).not.toContain("pragma metal_sim");
  });

  it("leaves untouched text as it was", () => {
    const text = '# 1 "a.metal"\nint f(int a) {\n  return a >> 1 ? a->b : c ::d; // no\n}\n';
    expect(unparse(tokenize(text))).toBe(text);
  });
});
