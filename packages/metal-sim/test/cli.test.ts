import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { withClang } from "@mlxts/test-kit/clang";
import { afterAll, expect, it } from "vitest";
import { writeTensors } from "../src/safetensors.ts";
import { pack } from "../src/values.ts";
import { example } from "./example.ts";

const bin = fileURLToPath(new URL("../bin/metal-sim.mjs", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "metal-sim-test-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function metalSim(args: string[], env: Record<string, string> = {}) {
  const result = spawnSync(process.execPath, [bin, ...args], { encoding: "utf8", env: { ...process.env, ...env } });
  return { status: result.status, stdout: result.stdout, stderr: result.stderr };
}

const rms = [
  ...["--kernel", "rms_norm_f32", "--grid", "2", "--group", "64", "--threadgroup", "partial=8"],
  ...["--bytes", "p=u32:256,f32:1e-5"],
];
const filled = ["--fill", "x=random:512", "--fill", "weight=random:256:1", "--fill", "out=nan:512"];

withClang("metal-sim", () => {
  it("run reads and writes safetensors", () => {
    const [input, output] = [join(folder, "in.safetensors"), join(folder, "out.safetensors")];
    const ones = (n: number) => pack(Array.from({ length: n }, () => ({ type: "f32", value: 2 })));
    writeTensors(
      input,
      new Map([
        ["a.x", { dtype: "F32", shape: [2, 256], bytes: ones(512) }],
        ["w", { dtype: "F32", shape: [256], bytes: ones(256) }],
      ]),
    );
    const { status, stdout } = metalSim([
      ...["run", example("rms_norm.metal"), ...rms, "--buffer", `x=${input}:a.x`, "--buffer", `weight=${input}:w`],
      ...["--fill", "out=nan:512", "--print", "out=3", "--out", `out=${output}:y`, "--schedule", "random:7"],
    ]);
    expect(stdout).toMatch(
      /^rms_norm_f32: [\d.]+ ms, outputs [0-9a-f]{16}\nout: 1\.99999\d+ 1\.99999\d+ 1\.99999\d+\n$/,
    );
    expect(status).toBe(0);
    const file = readFileSync(output);
    expect(JSON.parse(file.subarray(8, 8 + Number(file.readBigUInt64LE(0))).toString())).toEqual({
      y: { dtype: "F32", shape: [512], data_offsets: [0, 2048] },
    });
  });

  it("cuda prints CUDA C++ with entries", () => {
    const args = ["cuda", example("rms_norm.metal"), "--kernel", "rms_norm_f16", "--threads", "64"];
    const { status, stdout, stderr } = metalSim(args);
    expect(stderr).toBe("");
    expect(status).toBe(0);
    expect(stdout).toMatch(/^#include <cuda_metal.h>\n/);
    expect(stdout.match(/MLXTS_CUDA_ENTRY/g)).toHaveLength(1);
    expect(stdout).toContain("MLXTS_CUDA_ENTRY(64) mlxts_rms_norm_f16(");
    expect(metalSim([...args.slice(0, 2), "--kernel", "absent"])).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("there is no kernel `absent`"),
    });
    expect(metalSim([...args.slice(0, 2), "--threads", "0"]).status).toBe(2);
  });

  it("run --coverage", () => {
    const { stdout } = metalSim(["run", example("rms_norm.metal"), ...rms, ...filled, "--coverage"]);
    expect(stdout).toMatch(/rms_norm\.metal: (\d+) of \1 lines executed\n$/);
  });

  it("check of a correct kernel", () => {
    expect(metalSim(["check", example("rms_norm.metal"), ...rms, ...filled])).toEqual({
      status: 0,
      stdout: "rms_norm_f32: no findings; the same bits under 4 schedules\n",
      stderr: "",
    });
  });

  it("check of a wrong one", () => {
    const { status, stdout } = metalSim([
      ...["check", example("planted.metal"), "-k", "missing_barrier", "--fill", "out=nan:64"],
      ...["--group", "64", "--threadgroup", "tile=256"],
    ]);
    expect(status).toBe(1);
    expect(stdout).toContain("planted.metal:9 by thread");
    expect(stdout).toContain("outputs differ between schedules");
  });

  it("reflect", () => {
    const { stdout } = metalSim(["reflect", example("rms_norm.metal")]);
    expect(stdout.split("\n").slice(0, 7)).toEqual([
      `rms_norm_f32  ${example("rms_norm.metal")}:35`,
      "  [[buffer(0)]]  float x  read device",
      "  [[buffer(1)]]  float weight  read device",
      "  [[buffer(2)]]  float out  read-write device",
      "  [[buffer(3)]]  Params p  read constant",
      "  [[threadgroup(0)]]  float partial  read-write threadgroup",
      "  [[threadgroup_position_in_grid]]  uint row",
    ]);
  });

  it("lint finds wrong address spaces, and nothing in correct kernels", () => {
    const path = join(folder, "spaces.metal");
    writeFileSync(
      path,
      `#include <metal_stdlib>
using namespace metal;
struct P { uint n; float v[3]; };
inline float first(device const float* p) { return p[0]; }
kernel void k(device float* o [[buffer(0)]], threadgroup float* s [[threadgroup(0)]], constant P& c [[buffer(1)]]) {
  device float* q = s;
  float* r = o;
  o[0] = first(s);
  threadgroup float tile[32];
  tile[0] = c.v[0];
  const P copy = c;
  q[0] = r[0] + tile[0] + copy.v[1];
  c.n = 2;
}
`,
    );
    const { status, stdout } = metalSim(["lint", path]);
    expect(stdout.split("\n").map((line) => line.replace(`${path}:`, ""))).toEqual([
      "6: address-space: cannot initialize a variable of type 'device float *' with an lvalue of type 'threadgroup float *'",
      "7: address-space: cannot initialize a variable of type 'thread float *' with an lvalue of type 'device float *'",
      "8: address-space: no matching function for call to 'first'",
      "9: subset: `threadgroup` variables are outside the portable subset: take a [[threadgroup(n)]] argument",
      "13: error: cannot assign to variable 'c' with const-qualified type 'const P &'",
      "",
    ]);
    expect(status).toBe(1);
    expect(metalSim(["lint", example("rms_norm.metal")])).toEqual({ status: 0, stdout: "", stderr: "" });
    // The features kernels declare threadgroup variables on purpose.
    const features = metalSim(["lint", example("features.metal")])
      .stdout.trim()
      .split("\n");
    expect(features.filter((line) => !line.includes(": subset: "))).toEqual([]);
  });

  it("compile gives a module for native hosts", () => {
    const { stdout } = metalSim([
      "compile",
      example("rms_norm.metal"),
      "--name",
      "program_source",
      "--check",
      "--print-module",
    ]);
    expect(stdout).toMatch(/\/[0-9a-f]{32}\.so\n$/);
  });

  it("says what is wrong", () => {
    expect(metalSim(["run", example("rms_norm.metal"), "--kernel", "x"])).toEqual({
      status: 2,
      stdout: "",
      stderr: "InvalidArgument: --kernel must be one of rms_norm_f32, rms_norm_f16, rms_norm_bf16, got x\n",
    });
    expect(metalSim(["run", example("rms_norm.metal"), ...rms]).stderr).toBe(
      "InvalidArgument: `x` is not bound: give it --buffer, --fill or --bytes\n",
    );
    expect(metalSim(["walk"]).status).toBe(2);
    const ready = ["run", example("rms_norm.metal"), ...rms];
    for (const [option, max] of [
      ["--workers", 1024],
      ["--timeout", 2_000_000_000],
    ] as const)
      for (const value of ["x", "0", "-5", "1.5", ""])
        expect(metalSim([...ready, `${option}=${value}`])).toEqual({
          status: 2,
          stdout: "",
          stderr: `InvalidArgument: ${option} must be an integer from 1 to ${max}, got ${JSON.stringify(value)}\n`,
        });
    const path = join(folder, "texture.metal");
    writeFileSync(path, "#include <metal_stdlib>\nkernel void k(texture2d<float> t [[texture(0)]]) {}\n");
    expect(metalSim(["reflect", path])).toMatchObject({
      status: 1,
      stderr:
        `Untranslatable: ${path}:2: \`texture2d\` is not simulated: textures are outside the subset\n` +
        `${path}:2: \`[[texture(0)]]\` is not simulated\n`,
    });
  });
});

it("names the compiler to install when there is none", () => {
  expect(metalSim(["reflect", example("rms_norm.metal")], { MLXTS_CLANG: "/nowhere/clang++" })).toEqual({
    status: 1,
    stdout: "",
    stderr:
      "NoCompiler: no clang of version 18 or newer (MLXTS_CLANG=/nowhere/clang++ is no clang of version 18 or newer): " +
      "install clang 19 (Debian, Ubuntu: apt-get install clang-19), or set MLXTS_CLANG to the path of a clang++\n",
  });
});
