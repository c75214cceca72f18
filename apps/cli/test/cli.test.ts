import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readSafetensors, writeSafetensors } from "@mlxts/core";
import { compare } from "@mlxts/core/testing";
import { describe, expect, it } from "vitest";
import { inProcess, mlxts, testFolder, tiny } from "./helpers.ts";

const folder = testFolder();

const recorded = readSafetensors(join(tiny, "reference.safetensors")).tensors;
type Tensors = ReturnType<typeof readSafetensors>["tensors"];
const numbers = (tensors: Tensors, name: string) => Array.from(tensors.get(name)?.data as Float32Array);
const ids = numbers(recorded, "prompt0.ids");
const greedy = numbers(recorded, "prompt0.greedy");
const texts = JSON.parse(readFileSync(join(tiny, "reference.json"), "utf8")) as {
  prompts: string[];
  greedy_texts: string[];
};

/** The names of all ops of the packages that the command line depends on. */
async function exportedOps(): Promise<string[]> {
  const { dependencies } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
  const packages = Object.keys(dependencies).filter((name) => name.startsWith("@mlxts/"));
  const modules = await Promise.all(packages.map((name) => import(name) as Promise<object>));
  return modules
    .flatMap((module) => Object.values(module))
    .flatMap((value) => (typeof value === "function" && "op" in value ? [value.op.name as string] : []));
}

describe("mlxts", () => {
  it("devices", () => {
    const { status, stdout } = mlxts("devices", "--json");
    expect(status).toBe(0);
    expect(JSON.parse(stdout)[0]).toMatchObject({ kind: "cpu", level: expect.any(String) });
    expect(mlxts("devices").stdout).toMatch(/^cpu {4}.+threads/);
    expect(JSON.parse(stdout)[1]).toMatchObject({
      kind: "metal",
      available: false,
      reason: expect.stringContaining("metal"),
    });
  });

  it("generate streams the recorded text, and reports speed apart from it", () => {
    const { status, stdout, stderr } = mlxts(
      "generate",
      tiny,
      "--prompt",
      texts.prompts[0] as string,
      "--max-tokens",
      "64",
      // In which it was recorded: roundings of the checkpoint's bf16 choose other tokens sooner or later.
      "--activation-dtype",
      "f32",
    );
    expect(status).toBe(0);
    expect((texts.prompts[0] as string) + stdout).toBe(`${texts.greedy_texts[0]}\n`);
    expect(stderr).toMatch(
      /prefill 11 tokens, \d+ tokens\/s; decode 64 tokens, \d+ tokens\/s; ended by --max-tokens 64\n$/,
    );
  });

  it("generate --json from ids", () => {
    const { stdout } = mlxts("generate", tiny, "--ids", ids.join(","), "--max-tokens", "8", "--json");
    expect(JSON.parse(stdout)).toMatchObject({
      promptIds: ids,
      ids: greedy.slice(0, 8),
      text: expect.any(String),
      finishReason: "length",
      timings: { promptTokens: 11, generatedTokens: 8 },
    });
  });

  it("logits of the last position and of every n-th", () => {
    const last = join(folder, "last.safetensors");
    expect(mlxts("logits", tiny, "--ids", ids.join(","), "--activation-dtype", "f32", "--out", last).status).toBe(0);
    const logits = readSafetensors(last).tensors.get("logits");
    expect(logits).toMatchObject({ dtype: "f32", shape: [1, 4096] });
    expect(
      compare(logits?.data as Float32Array, recorded.get("prompt0.logits")?.data as Float32Array).ratio,
    ).toBeLessThan(1e-5);
    const every = join(folder, "every.safetensors");
    expect(mlxts("logits", tiny, "--ids", ids.join(","), "--every", "4", "--out", every).stdout).toContain(
      "positions 3, 7",
    );
    expect(readSafetensors(every).tensors.get("logits")?.shape).toEqual([2, 4096]);
  });

  it("quantize writes a checkpoint that generate reads", () => {
    const out = join(folder, "four");
    const { status, stdout } = mlxts("quantize", tiny, out, "--bits", "4", "--group-size", "64");
    expect([status, stdout]).toEqual([0, expect.stringContaining("tensors")]);
    const eight = join(folder, "eight");
    expect(mlxts("quantize", tiny, eight, "--bits", "8", "--group-size", "32").status).toBe(0);
    expect(mlxts("inspect", eight).stdout).toContain("8 bits, groups of 32, affine");
    expect(mlxts("quantize", tiny, eight)).toMatchObject({
      status: 1,
      stderr: expect.stringContaining("quantize: `out-dir` must be new or an empty directory"),
    });
    const theirs = mlxts("generate", `${tiny}-4bit`, "--ids", ids.join(","), "--max-tokens", "16", "--json").stdout;
    const ours = mlxts("generate", out, "--ids", ids.join(","), "--max-tokens", "16", "--json").stdout;
    expect(JSON.parse(ours).ids).toEqual(JSON.parse(theirs).ids);
  });

  it("op --list --json describes every op with its inputs, parameters and outputs", async () => {
    const ops = JSON.parse(mlxts("op", "--list", "--json").stdout) as {
      name: string;
      inputs: object;
      outputs: object;
    }[];
    expect(ops.map(({ name }) => name).sort()).toEqual((await exportedOps()).sort());
    for (const { inputs, outputs } of ops)
      expect([Object.keys(inputs).length > 0, Object.keys(outputs).length > 0]).toEqual([true, true]);
    expect(ops.find(({ name }) => name === "quantizedMatmul")).toMatchObject({
      inputs: { x: {}, weight: { dtype: ["u32"] }, scales: {}, biases: {} },
      params: { bits: {}, groupSize: {}, transpose: { default: true } },
    });
  });

  it("op runs one op on the tensors of a file, also by the names that Python uses", () => {
    const input = join(folder, "case.safetensors");
    const out = join(folder, "result.safetensors");
    const x = Float32Array.from([3, 4, 0, 0]);
    for (const weight of ["weight", "w"]) {
      writeSafetensors(input, [
        ["x", { dtype: "f32", shape: [1, 4], data: x }],
        [weight, { dtype: "f32", shape: [4], data: Float32Array.from([1, 2, 3, 4]) }],
      ]);
      expect(
        mlxts("op", "rmsNorm", "--in", input, "--param", "eps=0", "--param", "weightOffset=1", "--out", out),
      ).toMatchObject({ status: 0 });
      const result = numbers(readSafetensors(out).tensors, "out");
      expect(result.map((v) => v.toFixed(5))).toEqual(["2.40000", "4.80000", "0.00000", "0.00000"]);
    }
  });

  it("op takes outputs given in the file, and any spelling of names", () => {
    const input = join(folder, "given.safetensors");
    const out = join(folder, "given-out.safetensors");
    writeSafetensors(input, [
      ["x", { dtype: "bf16", shape: [1, 1, 1], data: Uint16Array.from([0x3f80]) }],
      ["w", { dtype: "bf16", shape: [1, 2], data: Uint16Array.from([0x3f80, 0x3f80]) }],
      ["final_state", { dtype: "f32", shape: [1, 1, 1], data: new Float32Array(1) }],
    ]);
    expect(mlxts("op", "--param", "activation=none", "causalConv1d", "--in", input, "--out", out)).toMatchObject({
      status: 0,
    });
    expect(readSafetensors(out).tensors.get("finalState")).toMatchObject({
      dtype: "f32",
      data: Float32Array.from([1]),
    });
    expect(mlxts("op", "--in", input, "--out", out).stderr).toContain("must be the name of an op");
    const several = ["--param", "activation=silu", "activation=none", "--param", "activation=none"];
    expect(mlxts("op", "causalConv1d", "--in", input, ...several, "--out", out)).toMatchObject({ status: 0 });
    expect(mlxts("op", "causalConv1d", "--in", input, "--param", "silu", "--out", out)).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("`--param` must be key=value, got silu"),
    });
  });

  it("op writes optional outputs too", () => {
    const input = join(folder, "conv.safetensors");
    const out = join(folder, "conv-out.safetensors");
    writeSafetensors(input, [
      ["x", { dtype: "f32", shape: [1, 2, 1], data: Float32Array.from([1, 2]) }],
      ["w", { dtype: "f32", shape: [1, 3], data: Float32Array.from([100, 10, 1]) }],
      ["initial_state", { dtype: "f32", shape: [1, 2, 1], data: Float32Array.from([3, 4]) }],
    ]);
    expect(mlxts("op", "causalConv1d", "--in", input, "--param", "activation=none", "--out", out)).toMatchObject({
      status: 0,
    });
    const { tensors } = readSafetensors(out);
    expect(numbers(tensors, "y")).toEqual([341, 412]);
    expect(numbers(tensors, "finalState")).toEqual([1, 2]);
  });

  it.each([
    [["generate", join(tiny, "nowhere"), "--ids", "1"], 1, "Io: loadModel:"],
    [["generate", tiny, "--chat", "hi"], 1, "must have a chat template"],
    [["op", "rmsNorm", "--in", join(folder, "missing"), "--out", join(folder, "none")], 1, "Io:"],
  ])("%j is refused", (args, status, message) => {
    const result = mlxts(...args);
    expect(result.stderr).toContain(message);
    expect(result.status).toBe(status);
    expect(existsSync(join(folder, "none"))).toBe(false);
  });

  it("op refuses wrong tensors and parameters by name", () => {
    const input = join(folder, "wrong.safetensors");
    const out = join(folder, "wrong-out.safetensors");
    const run = (tensors: [string, number[]][], ...params: string[]) => {
      writeSafetensors(
        input,
        tensors.map(([name, shape]) => [
          name,
          { dtype: "f32", shape, data: new Float32Array(shape.reduce((a, b) => a * b, 1)) },
        ]),
      );
      return mlxts("op", "rmsNorm", "--in", input, ...params.flatMap((param) => ["--param", param]), "--out", out)
        .stderr;
    };
    expect(run([["x", [2, 4]]])).toContain(`rmsNorm: \`weight\` must be among the tensors of ${input}, got only x`);
    expect(
      run([
        ["x", [2, 4]],
        ["weight", [3]],
      ]),
    ).toContain("rmsNorm: `weight` must have shape [4], got [3]");
    expect(
      run([
        ["x", [2, 4]],
        ["weight", [4]],
        ["y", [1]],
      ]),
    ).toContain("rmsNorm: `y` must be one of x, weight, out, got an unknown tensor name");
    expect(
      run(
        [
          ["x", [2, 4]],
          ["weight", [4]],
        ],
        "eps=-1",
      ),
    ).toContain("rmsNorm: `eps` must be a finite number ≥ 0, got -1");
    expect(
      run(
        [
          ["x", [2, 4]],
          ["weight", [4]],
        ],
        "rounding=maybe",
      ),
    ).toContain("rmsNorm: `rounding` must be one of once, before-weight, got maybe");
    expect(
      run(
        [
          ["x", [2, 4]],
          ["weight", [4]],
        ],
        "speed=1",
      ),
    ).toContain("rmsNorm: `param` must be key=value with a key of eps, weightOffset, rounding, got speed=1");
    writeFileSync(input, "no safetensors");
    expect(mlxts("op", "rmsNorm", "--in", input, "--out", out).stderr).toContain("Safetensors:");
    expect(existsSync(out)).toBe(false);
  });
});

describe("generate says why the text ended", () => {
  /** The tiny checkpoint with other settings. */
  const variant = (name: string, config: object, generation: object) => {
    const path = join(folder, name);
    mkdirSync(path);
    for (const file of ["model.safetensors", "tokenizer.json"]) symlinkSync(join(tiny, file), join(path, file));
    const own = JSON.parse(readFileSync(join(tiny, "config.json"), "utf8"));
    writeFileSync(join(path, "config.json"), JSON.stringify({ ...own, ...config }));
    writeFileSync(join(path, "generation_config.json"), JSON.stringify(generation));
    return path;
  };
  const generated = async (path: string, ...args: string[]) => {
    const given = ["generate", path, "--ids", ids.join(","), ...args];
    const { stderr } = await inProcess(...given);
    return {
      report: JSON.parse((await inProcess(...given, "--json")).stdout),
      end: stderr.trimEnd().split("; ").at(-1),
    };
  };

  it("a stop token, --max-tokens, or the end of the context", async () => {
    const stops = variant("stops", {}, { eos_token_id: greedy[5] });
    const { report, end } = await generated(stops);
    expect(report).toMatchObject({
      ids: greedy.slice(0, greedy.indexOf(greedy[5] as number)),
      finishReason: "stop",
      stopToken: greedy[5],
    });
    expect(end).toBe("ended by a stop token");
    const short = variant("short", { max_position_embeddings: 16 }, {});
    expect(await generated(short)).toMatchObject({
      report: { finishReason: "length" },
      end: "ended by the end of the model's context",
    });
    expect(await generated(short, "--max-tokens", "2")).toMatchObject({
      report: { ids: greedy.slice(0, 2), finishReason: "length" },
      end: "ended by --max-tokens 2",
    });
  });

  it("the sampling of the checkpoint is used where none is given", async () => {
    const draws = variant("draws", {}, { do_sample: true, temperature: 5 });
    const hot = await generated(draws, "--max-tokens", "32");
    expect(hot.report.ids).not.toEqual(greedy.slice(0, 32));
    expect(hot.report.ids).toEqual((await generated(tiny, "--max-tokens", "32", "--temp", "5")).report.ids);
    const likeliest = await generated(draws, "--max-tokens", "32", "--temp", "0", "--activation-dtype", "f32");
    expect(likeliest.report.ids).toEqual(greedy.slice(0, 32));
  });
});
