import { linkSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readSafetensors, writeSafetensors } from "@mlxts/core";
import { describe, expect, it } from "vitest";
import { inProcess, testFolder, tiny } from "./helpers.ts";

const folder = testFolder();
const at = (name: string) => join(folder, name);

type Raw = [stored: string, shape: number[], data: ArrayBufferView];

/** A safetensors file of any element types. */
function writeStored(path: string, tensors: Record<string, Raw>): void {
  const header: Record<string, unknown> = {};
  const parts: Buffer[] = [];
  let end = 0;
  for (const [name, [dtype, shape, data]] of Object.entries(tensors)) {
    header[name] = { dtype, shape, data_offsets: [end, end + data.byteLength] };
    parts.push(Buffer.from(data.buffer, data.byteOffset, data.byteLength));
    end += data.byteLength;
  }
  const json = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  writeFileSync(path, Buffer.concat([length, json, ...parts]));
}

const run = (op: string, ...args: string[]) => inProcess("op", op, "--in", at("in"), ...args, "--out", at("out"));
const result = (name: string) => readSafetensors(at("out")).tensors.get(name);
const failed = (stderr: string) => ({ status: 1, stdout: "", stderr: `InvalidArgument: ${stderr}\n` });

const ROWS = {
  q: ["F32", [1, 2, 1, 8], new Float32Array(16).fill(0.5)],
  k: ["F32", [1, 2, 1, 8], new Float32Array(16).fill(0.25)],
  v: ["F32", [1, 2, 1, 4], new Float32Array(8).fill(1)],
  g: ["F32", [1, 2, 1], new Float32Array(2)],
  beta: ["F32", [1, 2, 1], new Float32Array(2).fill(1)],
} satisfies Record<string, Raw>;

describe("outputs of mlxts op", () => {
  it.each(["gatedDeltaRule", "gatedDeltaRuleRecurrent"])("%s: those whose parameters are given", async (op) => {
    writeStored(at("in"), ROWS);
    const written = async (...args: string[]) => {
      expect(await run(op, "--param", "scale=1", ...args)).toMatchObject({ status: 0, stderr: "" });
      return [...readSafetensors(at("out")).tensors.keys()].sort();
    };
    expect(await written()).toEqual(["finalState", "o"]);
    const log = ["logDeltas", "logGates", "logKeys", "logState"];
    expect(await written("--param", "lastTokens=2")).toEqual(["finalState", "lastStates", ...log, "o"]);
    expect(await written("--outputs", "o")).toEqual(["o"]);
    expect(await written("--outputs", "final_state,o")).toEqual(["finalState", "o"]);
    expect(await run(op, "--param", "scale=1", "--outputs", "lastStates")).toEqual({
      status: 2,
      stdout: "",
      stderr: `${op}: \`lastTokens\` must be given, as --param lastTokens=<an integer ≥ 1 and ≤ 64>, got nothing — \`lastStates\` needs it\n`,
    });
  });
});

describe("tensors of mlxts op", () => {
  it("converts F64, I64, U64 and BOOL where that is exact", async () => {
    writeStored(at("in"), {
      ...ROWS,
      q: ["F64", [1, 2, 1, 8], new Float64Array(16).fill(0.5)],
      g: ["I64", [1, 2, 1], new BigInt64Array(2)],
      beta: ["BOOL", [1, 2, 1], Uint8Array.of(1, 1)],
      cu_seqlens: ["I64", [2], BigInt64Array.of(0n, 2n)],
    });
    expect(await run("gatedDeltaRule", "--param", "scale=1")).toMatchObject({ status: 0, stderr: "" });
    const converted = result("o");
    writeStored(at("in"), ROWS);
    await run("gatedDeltaRule", "--param", "scale=1");
    expect(converted).toEqual(result("o"));
    expect(converted?.dtype).toBe("f32");
    writeStored(at("in"), {
      ids: ["U64", [2], BigUint64Array.of(1n, 0n)],
      weight: ["BF16", [2, 2], Uint16Array.of(1, 2, 3, 4)],
    });
    expect(await run("embedding")).toMatchObject({ status: 0, stderr: "" });
    expect(result("out")).toMatchObject({ dtype: "bf16", data: Uint16Array.of(3, 4, 1, 2) });
    // The dtype of the op's other tensors decides: 0.5 and NaN are exact in bf16.
    writeStored(at("in"), {
      a: ["BF16", [2], Uint16Array.of(0x3f80, 0x3f80)],
      b: ["F64", [2], Float64Array.of(0.5, Number.NaN)],
    });
    expect(await run("add")).toMatchObject({ status: 0, stderr: "" });
    expect(result("out")).toMatchObject({ dtype: "bf16", data: Uint16Array.of(0x3fc0, 0x7fc0) });
  });

  it("refuses the first inexact element", async () => {
    const x = (stored: string, data: ArrayBufferView) => writeStored(at("in"), { x: [stored, [2], data] });
    x("F64", Float64Array.of(0.5, 0.1));
    expect(await run("l2Norm")).toEqual(
      failed("l2Norm: `x` must be exact in f32, got 0.1 at element 1 of the file's F64 — save it as F32"),
    );
    x("F64", Float64Array.of(1e300, 0.1));
    expect(await run("l2Norm")).toEqual(
      failed("l2Norm: `x` must be exact in f32, got 1e+300 at element 0 of the file's F64 — save it as F32"),
    );
    x("I64", BigInt64Array.of(16777216n, 16777217n));
    expect(await run("l2Norm")).toEqual(
      failed("l2Norm: `x` must be exact in f32, got 16777217 at element 1 of the file's I64 — save it as F32"),
    );
    // 2^53 + 1 becomes 2^53 as f64, which f32 holds exactly: the check must use the integer.
    x("I64", BigInt64Array.of(0n, 2n ** 53n + 1n));
    expect(await run("l2Norm")).toEqual(
      failed("l2Norm: `x` must be exact in f32, got 9007199254740993 at element 1 of the file's I64 — save it as F32"),
    );
    const ids = (stored: string, data: ArrayBufferView) =>
      writeStored(at("in"), { ids: [stored, [1], data], weight: ["F32", [2, 2], new Float32Array(4)] });
    for (const [stored, data, text] of [
      ["I64", BigInt64Array.of(-(2n ** 63n)), "-9223372036854775808"],
      ["I64", BigInt64Array.of(2n ** 53n + 1n), "9007199254740993"],
      ["U64", BigUint64Array.of(2n ** 64n - 1n), "18446744073709551615"],
      ["F64", Float64Array.of(0.5), "0.5"],
      ["F64", Float64Array.of(Number.NaN), "NaN"],
      ["F64", Float64Array.of(2 ** 32), "4294967296"],
    ] as const) {
      ids(stored, data);
      const { stderr } = await run("embedding");
      expect(stderr).toMatch(/^InvalidArgument: embedding: `ids` must be exact in [ui]32, got /);
      expect(stderr).toContain(`got ${text} at element 0 of the file's ${stored} — save it as `);
    }
  });

  it("refuses unknown names, and names that are there twice", async () => {
    writeStored(at("in"), { x: ["F32", [1], new Float32Array(1)], y: ["F64", [1], new Float64Array(1)] });
    expect(await run("rmsNorm")).toEqual(
      failed("rmsNorm: `y` must be one of x, weight, out, got an unknown tensor name"),
    );
    writeStored(at("in"), {
      x: ["F32", [1], new Float32Array(1)],
      w: ["F32", [1], new Float32Array(1)],
      weight: ["F32", [1], new Float32Array(1)],
    });
    expect(await run("rmsNorm")).toEqual(
      failed("rmsNorm: `weight` must be in the file once, got it as w and as weight"),
    );
  });
});

describe("--out", () => {
  const tensors = [["x", { dtype: "f32", shape: [2], data: Float32Array.of(3, 4) }]] as const;
  const refusal = (command: string, read: string, out: string) => ({
    status: 1,
    stdout: "",
    stderr: `Io: ${command}: \`--out\` must not overwrite what is read from ${read}, got ${out} — give another file, or --force\n`,
  });

  it("is not the file of --in, by whatever name", async () => {
    mkdirSync(at("sub"));
    symlinkSync(folder, at("folder-link"));
    writeSafetensors(at("case"), tensors);
    symlinkSync(at("case"), at("soft"));
    linkSync(at("case"), at("hard"));
    const before = readFileSync(at("case"));
    for (const out of [at("case"), `${folder}/sub/../case`, at("soft"), at("hard"), at("folder-link/case")])
      expect(await inProcess("op", "l2Norm", "--in", at("case"), "--out", out)).toEqual(refusal("op", at("case"), out));
    expect(await inProcess("op", "l2Norm", "--in", at("soft"), "--out", at("case"))).toEqual(
      refusal("op", at("soft"), at("case")),
    );
    expect(readFileSync(at("case"))).toEqual(before);
    const forced = await inProcess("op", "l2Norm", "--in", at("case"), "--out", at("case"), "--force");
    expect(forced).toMatchObject({ status: 0, stderr: "" });
    expect([...readSafetensors(at("case")).tensors.keys()]).toEqual(["out"]);
  });

  it("replaces an older file, also through a link", async () => {
    writeSafetensors(at("case2"), tensors);
    writeFileSync(at("older"), "older");
    symlinkSync(at("older"), at("to-older"));
    expect(await inProcess("op", "l2Norm", "--in", at("case2"), "--out", at("to-older"))).toMatchObject({ status: 0 });
    expect([...readSafetensors(at("older")).tensors.keys()]).toEqual(["out"]);
    expect(readFileSync(at("to-older"))).toEqual(readFileSync(at("older")));
  });

  it("of logits must not be a file of the checkpoint", async () => {
    symlinkSync(join(tiny, "config.json"), at("linked-config"));
    const args = ["logits", tiny, "--ids", "1", "--out"];
    for (const out of [join(tiny, "model.safetensors"), at("linked-config")])
      expect(await inProcess(...args, out)).toEqual(refusal("logits", tiny, out));
  });
});
