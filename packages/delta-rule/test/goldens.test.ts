import { type Dtype, encodeNumbers, type FloatDtype, type HostTensor } from "@mlxts/core";
import { BARS, compare, within } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { type Goldens, goldens } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import { causalConv1d, deltaGates, gatedDeltaRule } from "../src/index.ts";
import { gatedDeltaRuleReference } from "../src/reference.ts";

/** [.., rows, columns] with the last two axes exchanged. */
function turned({ shape, data }: HostTensor): { shape: number[]; data: Float32Array } {
  const [rows, columns] = shape.slice(-2) as [number, number];
  const out = new Float32Array(data.length);
  for (let at = 0; at < data.length; at += rows * columns)
    for (let r = 0; r < rows; r++)
      for (let c = 0; c < columns; c++) out[at + c * rows + r] = data[at + r * columns + c] as number;
  return { shape: [...shape.slice(0, -2), columns, rows], data: out };
}

type Host = Pick<HostTensor, "shape"> & { data: ArrayLike<number> };

/** Theirs is f32 too: the bar of our class has to hold between two f32 computations. */
function expectClose(
  out: ArrayLike<number>,
  golden: ArrayLike<number>,
  errorClass: "P" | "S" | "R",
  what: string,
  act: FloatDtype = "f32",
) {
  const { [act]: bar, spread } = BARS[errorClass];
  const comparison = compare(out, golden);
  expect(within(comparison, bar, spread), `${what}: ratio ${comparison.ratio}`).toBe(true);
}

const hf = goldens("goldens/delta_rule_hf.safetensors");
const fla = goldens("goldens/delta_rule_fla.safetensors");
const recorded = goldens("tiny-qwen3.5/reference.safetensors");
const ops = goldens("goldens/hf_ops.safetensors");

const shapes = goldens("goldens/delta_rule_shapes.safetensors");
const kda = goldens("goldens/delta_rule_kda.safetensors");
const mlx = goldens("goldens/delta_rule_mlx.safetensors");

const CASES = ["t70", "t33_state", "t130_strong", "b2_t64_state", "t1_state"];
/** The cases of a file, and the results it has of one. */
const casesOf = (file: Goldens) =>
  file.names.filter((name) => name.endsWith(".beta")).map((name) => name.slice(0, -".beta".length));
const sourcesOf = (file: Goldens, name: string) =>
  file.names.filter((key) => key.startsWith(`${name}.`) && key.endsWith(".o")).map((key) => key.slice(0, -2));
const PATHS = [{ path: "recurrent" }, { path: "chunk", chunkLength: 64 }, { path: "chunk", chunkLength: 16 }] as const;

describe("the reference in f64 agrees with", () => {
  for (const [title, file, options] of [
    ["transformers and flash-linear-attention", shapes, { qkNorm: "sum-eps" }],
    ["them on a gate for each channel", kda, { qkNorm: "sum-eps" }],
    ["mlx-lm, epsilon beside the sum", mlx, { qkNorm: "sum-eps", gate: "linear" }],
    ["mlx-lm, epsilon beside the mean", mlx, { qkNorm: "mean-eps", gate: "linear" }],
  ] as const)
    it(title, () => {
      for (const name of casesOf(file)) {
        const [B, T, Hk, K] = file.tensor(`${name}.q`).shape as [number, number, number, number];
        const [, , H, V] = file.tensor(`${name}.v`).shape as [number, number, number, number];
        const inputs = ["q", "k", "v", "g", "beta", "mask"].flatMap((input) =>
          file.has(`${name}.${input}`) ? [[input, file.numbers(`${name}.${input}`)]] : [],
        );
        const state = `${name}.initial_state_kv`;
        const { o, finalState } = gatedDeltaRuleReference(
          { B, T, Hk, H, K, V },
          { ...Object.fromEntries(inputs), ...(file.has(state) && { initialState: file.numbers(state) }) },
          { scale: K ** -0.5, stateLayout: "kv", ...options },
        );
        const norm = options.qkNorm.slice(0, options.qkNorm.indexOf("-"));
        for (const source of sourcesOf(file, name).filter((key) => file !== mlx || key.endsWith(norm))) {
          expectClose(o, file.numbers(`${source}.o`), "P", `${source}.o`);
          expectClose(finalState, file.numbers(`${source}.final_state_kv`), "P", `${source} state`);
        }
      }
    });
});

describe.each(DEVICES)("on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());
  const upload = ({ shape, data }: Host) => device.tensor("f32", shape, Float32Array.from(data));

  describe("gatedDeltaRule against the functions of transformers and flash-linear-attention", () => {
    for (const name of CASES)
      for (const qkNorm of ["sum-eps", "none"] as const)
        for (const options of PATHS)
          it(`${name} qkNorm ${qkNorm} ${JSON.stringify(options)}`, async () => {
            const unit = qkNorm === "none" ? "_unit" : "";
            const q = hf.tensor(`${name}.q${unit}`);
            const state = `${name}.initial_state_kv`;
            const encoder = device.encoder();
            const { o, finalState } = gatedDeltaRule(
              encoder,
              {
                q: upload(q as Host),
                k: upload(hf.tensor(`${name}.k${unit}`) as Host),
                v: upload(hf.tensor(`${name}.v`) as Host),
                g: upload(hf.tensor(`${name}.g`) as Host),
                beta: upload(hf.tensor(`${name}.beta`) as Host),
                ...(hf.has(state) && { initialState: upload(turned(hf.tensor(state))) }),
                finalState: true,
              },
              { scale: (q.shape[3] as number) ** -0.5, qkNorm, ...options },
            );
            await encoder.commit();
            const [out, final] = [await o.readNumbers(), await finalState?.readNumbers()];
            const sources: [Goldens, string][] =
              qkNorm === "sum-eps"
                ? [
                    [hf, `${name}.l2_on.recurrent`],
                    [hf, `${name}.l2_on.chunk`],
                    [hf, `${name}.l2_on.float64`],
                  ]
                : [
                    [hf, `${name}.l2_off.recurrent`],
                    [hf, `${name}.l2_off.chunk`],
                    [fla, `${name}.l2_off.recurrent`],
                    [fla, `${name}.l2_off.chunk`],
                  ];
            for (const [file, prefix] of sources) {
              // The chunked functions of both lose 1.6e-5 to cumulative gates in f32 here.
              if (name === "t130_strong" && prefix.endsWith("chunk")) continue;
              expectClose(out, file.tensor(`${prefix}.o`).data as Float32Array, "P", `${prefix}.o`);
              const golden = turned(file.tensor(`${prefix}.final_state_kv`)).data;
              expectClose(final as Float64Array, golden, "P", `${prefix} state`);
            }
          });
  });

  /** A case of `file` in `act`, with states as [K, V], and what the rule makes of it. */
  async function ruleOf(
    file: Goldens,
    name: string,
    act: FloatDtype,
    options: Partial<Parameters<typeof gatedDeltaRule>[2]>,
  ) {
    const given = (input: string, dtype: Dtype) => {
      const { shape } = file.tensor(`${name}.${input}`);
      return device.tensor(dtype, shape, encodeNumbers(dtype, file.numbers(`${name}.${input}`)));
    };
    const optional = (input: string, as: string, dtype: Dtype) =>
      file.has(`${name}.${input}`) && { [as]: given(input, dtype) };
    const q = given("q", act);
    const encoder = device.encoder();
    const { o, finalState } = gatedDeltaRule(
      encoder,
      {
        q,
        k: given("k", act),
        v: given("v", act),
        g: given("g", "f32"),
        beta: given("beta", "f32"),
        ...optional("initial_state_kv", "initialState", "f32"),
        ...optional("mask", "mask", "u8"),
        finalState: true,
      },
      { scale: q.lastDim ** -0.5, qkNorm: "sum-eps", stateLayout: "kv", ...options },
    );
    await encoder.commit();
    return { o: await o.readNumbers(), state: (await finalState?.readNumbers()) as Float64Array };
  }

  // Inputs are numbers of bf16, so that every dtype is judged on the same case.
  for (const [title, file, labels] of [
    ["other shapes and strong gates", shapes, ["hf.recurrent", "hf.chunk", "fla.recurrent", "fla.chunk"]],
    ["a gate for each channel", kda, ["hf.recurrent", "hf.chunk", "fla.recurrent", "fla.chunk"]],
  ] as const)
    describe(`gatedDeltaRule, ${title}, against transformers and flash-linear-attention`, () => {
      it("has all sources, chunked ones where they keep their digits", () => {
        const found = casesOf(file).flatMap((name) =>
          sourcesOf(file, name).map((source) => source.slice(name.length + 1)),
        );
        expect(casesOf(file).length).toBeGreaterThan(3);
        for (const label of labels) expect(found.filter((source) => source === label).length).toBeGreaterThan(1);
      });
      for (const name of casesOf(file))
        for (const act of ["f32", "bf16"] as const)
          for (const options of PATHS)
            it(`${name} ${act} ${JSON.stringify(options)}`, async () => {
              const { o, state } = await ruleOf(file, name, act, options);
              for (const source of sourcesOf(file, name)) {
                expectClose(o, file.numbers(`${source}.o`), "P", `${source}.o`, act);
                expectClose(state, file.numbers(`${source}.final_state_kv`), "P", `${source} state`, act);
              }
            });
    });

  describe("gatedDeltaRule with decays as factors and two norms against mlx-lm", () => {
    for (const name of casesOf(mlx))
      for (const [norm, qkNorm] of [
        ["sum", "sum-eps"],
        ["mean", "mean-eps"],
      ] as const)
        for (const options of PATHS)
          it(`${name} ${qkNorm} ${JSON.stringify(options)}`, async () => {
            const { o, state } = await ruleOf(mlx, name, "f32", { gate: "linear", qkNorm, ...options });
            expectClose(o, mlx.numbers(`${name}.${norm}.o`), "P", "o");
            expectClose(state, mlx.numbers(`${name}.${norm}.final_state_kv`), "P", "state");
          });
  });

  it("deltaGates of each channel against transformers, flash-linear-attention and mlx-lm", async () => {
    const gate = (name: string) => kda.numbers(`gate.${name}`);
    const a = upload(kda.tensor("gate.a") as Host);
    const [B, T, H] = a.shape as [number, number, number, number];
    for (const [name, options] of [
      ["plain", {}],
      ["bounded", { lowerBound: -5 }],
    ] as const) {
      const encoder = device.encoder();
      const { g } = deltaGates(
        encoder,
        {
          a,
          b: device.tensor("f32", [B, T, H], new Float32Array(B * T * H)),
          aLog: upload(kda.tensor("gate.A_log") as Host),
          dtBias: upload(kda.tensor("gate.dt_bias") as Host),
        },
        options,
      );
      await encoder.commit();
      const logs = await g.readNumbers();
      expectClose(logs, gate(`fla.${name}`), "S", `fla ${name}`);
      expectClose(logs, gate(`hf.${name}`), "S", `hf ${name}`);
      expectClose(logs.map(Math.exp), gate(`mlx.${name}_linear`), "R", `mlx ${name}`);
    }
  });

  describe("gatedDeltaRule against recorded activations of a trained model", () => {
    for (const options of [...PATHS, { path: "auto" } as const])
      it(JSON.stringify(options), async () => {
        const tensor = (name: string) => {
          const { shape, data } = recorded.tensor(`op.delta.${name}`);
          return upload({ shape: [1, ...shape], data: data as Float32Array });
        };
        const encoder = device.encoder();
        const { o, finalState } = gatedDeltaRule(
          encoder,
          { q: tensor("q"), k: tensor("k"), v: tensor("v"), g: tensor("g"), beta: tensor("beta"), finalState: true },
          { scale: 128 ** -0.5, qkNorm: "sum-eps", ...options },
        );
        await encoder.commit();
        expectClose(await o.readNumbers(), recorded.tensor("op.delta.o").data as Float32Array, "P", "o");
        const state = recorded.tensor("op.delta.final_state");
        expectClose((await finalState?.readNumbers()) as Float64Array, turned(state).data, "P", "state");
      });
  });

  describe("causalConv1d against transformers", () => {
    const weight = upload(ops.tensor("conv.weight") as Host);
    const bias = upload(ops.tensor("conv.bias") as Host);
    const x = turned(ops.tensor("conv.x_bct"));
    for (const withBias of [false, true])
      for (const activation of ["none", "silu"] as const)
        it(`whole, ${withBias ? "with" : "no"} bias, ${activation}`, async () => {
          const encoder = device.encoder();
          const { y } = causalConv1d(encoder, { x: upload(x), weight, ...(withBias && { bias }) }, { activation });
          await encoder.commit();
          const golden = turned(ops.tensor(`conv.full.${withBias ? "bias" : "nobias"}.${activation}.y_bct`));
          expectClose(await y.readNumbers(), golden.data, "S", "y");
        });
    it("in pieces that carry the state", async () => {
      const [N, T, C] = x.shape as [number, number, number];
      const state = upload(turned(ops.tensor("conv.carry.state0_bcw")));
      let begin = 0;
      for (const [piece, length] of [1, 2, 7, 9].entries()) {
        const part = new Float32Array(N * length * C);
        for (let n = 0; n < N; n++)
          part.set(x.data.subarray((n * T + begin) * C, (n * T + begin + length) * C), n * length * C);
        const encoder = device.encoder();
        const { y } = causalConv1d(
          encoder,
          { x: upload({ shape: [N, length, C], data: part }), weight, initialState: state, finalState: state },
          { activation: "silu" },
        );
        await encoder.commit();
        expectClose(
          await y.readNumbers(),
          turned(ops.tensor(`conv.carry.y${piece + 1}_bct`)).data,
          "S",
          `y${piece + 1}`,
        );
        expect([...(await state.readNumbers())]).toEqual([
          ...turned(ops.tensor(`conv.carry.state${piece + 1}_bcw`)).data,
        ]);
        begin += length;
      }
    });
  });

  it("deltaGates against transformers", async () => {
    const encoder = device.encoder();
    const { g, beta } = deltaGates(encoder, {
      a: upload(ops.tensor("gates.a") as Host),
      b: upload(ops.tensor("gates.b") as Host),
      aLog: upload(ops.tensor("gates.A_log") as Host),
      dtBias: upload(ops.tensor("gates.dt_bias") as Host),
    });
    await encoder.commit();
    expectClose(await g.readNumbers(), ops.tensor("gates.g").data as Float32Array, "S", "g");
    expectClose(await beta.readNumbers(), ops.tensor("gates.beta").data as Float32Array, "S", "beta");
  });

  it("the rule of a small layer of transformers", async () => {
    const rule = (name: string) => upload(ops.tensor(`delta_layer.rule.${name}`) as Host);
    for (const options of PATHS) {
      const encoder = device.encoder();
      const { o } = gatedDeltaRule(
        encoder,
        { q: rule("q"), k: rule("k"), v: rule("v"), g: rule("g"), beta: rule("beta") },
        { scale: 0.25, qkNorm: "sum-eps", ...options },
      );
      await encoder.commit();
      expectClose(await o.readNumbers(), ops.tensor("delta_layer.rule.o").data as Float32Array, "P", "o");
    }
  });
});
