import { describe, expect, it } from "vitest";
import { contractOf } from "../src/contract.ts";
import { constantsOf, Device, defineKernel, paramsHeader, scratchFits } from "../src/index.ts";
import { runLaunchRule } from "../src/kernel.ts";
import { message } from "./helpers.ts";
import { keptKernel, launchKernel, overrunKernel } from "./kernels/probe.ts";

const plain = Device.open("cpu", { threads: 2 });
const checked = Device.open("cpu", { threads: 2, validate: true });

/** The overrun kernel on a device, in a submission of its own: where its arrays lie, and what two of them begin with. */
async function run(device: Device, { array = 0, extra = 0, columns = 3, groups = 1 }): Promise<number[]> {
  const out = device.tensor("u32", [5]);
  const encoder = device.encoder();
  encoder.dispatch(overrunKernel, {
    variant: "u32",
    buffers: { out },
    params: { array, extra },
    sizes: { groups, columns },
  });
  await encoder.commit();
  return [...(await out.readNumbers())];
}

describe("scratch arrays", () => {
  it("lie one behind the other, each on a cache line", async () => {
    // 60 bytes of `state`, none of `nothing`, 30 of `codes`.
    expect((await run(plain, {})).slice(0, 3)).toEqual([0, 64, 64]);
  });

  it("have guarded bytes behind each on a device that validates", async () => {
    expect((await run(checked, {})).slice(0, 3)).toEqual([0, 128, 192]);
  });

  it("hold NaN there, also where a kernel has left numbers", async () => {
    using one = Device.open("cpu", { threads: 1, validate: true });
    for (let i = 0; i < 3; i++) expect((await run(one, {})).slice(3)).toEqual([0xffffffff, 0xffff]);
  });

  it.each([
    ["state", 0, 1],
    ["state", 0, 64],
    ["nothing", 1, 1],
    ["codes", 2, 7],
  ])("are named when a kernel writes past them: %s", async (name, array, extra) => {
    await expect(run(checked, { array, extra })).rejects.toMatchObject({
      code: "CommandBuffer",
      message: `overrun: the kernel wrote past its scratch array \`${name}\``,
    });
    // The device still works.
    await run(checked, { groups: 9 });
  });

  it("are guarded as a whole on any device", async () => {
    await expect(run(plain, { array: 2, extra: 1 })).rejects.toMatchObject({
      code: "CommandBuffer",
      message: "overrun: the kernel wrote past its scratch",
    });
    await run(plain, {});
  });

  it("are kept from call to call of a dispatch, and from no other", async () => {
    for (const order of ["forward", "reverse"] as const)
      for (const validate of [false, true]) {
        using device = Device.open("cpu", { threads: validate ? 1 : 2, order, validate });
        const encoder = device.encoder();
        const outs = [1, 2, 3].map((tag) => {
          const out = device.tensor("u32", [64]);
          encoder.dispatch(keptKernel, { variant: "u32", buffers: { out }, params: { tag }, sizes: { groups: 64 } });
          return out;
        });
        await encoder.commit();
        const found = await Promise.all(outs.map(async (out) => [...(await out.readNumbers())]));
        expect(found.flat().filter((way) => way === 2)).toEqual([]);
        // Where arrays are guarded, all are fresh, for each of 64 threadgroups to a thread.
        for (const kept of [1, 3]) expect(found.flat().some((way) => way === kept)).toBe(!validate);
      }
  });

  it("are not kept from one submission for the next", async () => {
    using device = Device.open("cpu", { threads: 1 });
    for (const tag of [1, 2]) {
      const out = device.tensor("u32", [64]);
      const encoder = device.encoder();
      encoder.dispatch(keptKernel, { variant: "u32", buffers: { out }, params: { tag }, sizes: { groups: 64 } });
      await encoder.commit();
      expect((await out.readNumbers())[0]).toBe(0);
    }
  });

  it.each<[string, object | undefined, string]>([
    [
      "an unknown array",
      { state: [1], nothing: [0], codes: [1], more: [1] },
      "be declared by the kernel, got an unknown array",
    ],
    ["a missing array", { state: [1], nothing: [0] }, "`scratch.codes` must be a shape, got undefined"],
    ["no arrays", undefined, "`scratch.state` must be a shape, got undefined"],
    ["half an element", { state: [0.5], nothing: [0], codes: [1] }, "have dimensions that are integers ≥ 0, got [0.5]"],
    ["a negative one", { state: [-1], nothing: [0], codes: [1] }, "have dimensions that are integers ≥ 0, got [-1]"],
    ["too much", { state: [2 ** 30], nothing: [0], codes: [1] }, "`scratch` must take at most 16777216 bytes"],
  ])("of a launch rule are refused: %s", (_, scratch, text) => {
    const { library, name, variants, buffers, params } = overrunKernel;
    const rule = () => ({ threadgroups: [1, 1, 1], ...(scratch && { scratch }), params: { columns: 1 } });
    const kernel = defineKernel({
      ...{ library, name, variants, buffers, params, launchParams: { cpu: { columns: "u32" } } },
      scratch: { cpu: { state: "f32", nothing: "u8", codes: "u16" } },
      launch: { cpu: rule as never },
    });
    const out = plain.tensor("u32", [3]);
    const args = { variant: "u32", buffers: { out }, params: { array: 0, extra: 0 }, sizes: {} as never };
    expect(message(() => plain.encoder().dispatch(kernel, args))).toContain(text);
  });

  it("fit a device or not", () => {
    const fits = (scratch: number) => scratchFits(launchKernel, { groups: [1, 1, 1], scratch }, checked);
    const most = checked.limits.maxThreadgroupBytes;
    expect([fits(0), fits(most), fits(most + 1)]).toEqual([true, true, false]);
  });
});

describe("the two worlds", () => {
  it("have constants of their own beside the shared ones", () => {
    expect(constantsOf(overrunKernel, plain)).toEqual({ heads: 3, rows: 5 });
    expect(constantsOf(overrunKernel, { kind: "metal", gpu: true, limits: plain.limits })).toEqual({
      heads: 3,
      rows: 7,
    });
  });

  it("a GPU of NVIDIA has constants of its own in their place: for the op, the launch rule, the header and the contract", () => {
    const { library, name, variants } = overrunKernel;
    const declared = (cuda: { rows: number }) =>
      defineKernel({
        ...{ library, name, variants, buffers: { out: "write" }, params: {} },
        constants: { shared: { heads: 3 }, cpu: { rows: 5 }, gpu: { threads: 32, rows: 7 }, cuda },
        launch: {
          gpu: (_: object, { constants }) => ({ threadgroups: [constants.rows, constants.heads, 1] as const }),
        },
      });
    const kernel = declared({ rows: 9 });
    const on = (kind: string, launchKind = kind) => ({ kind, launchKind, gpu: true, limits: plain.limits });
    const rows = (device: ReturnType<typeof on>) => [
      (constantsOf(kernel, device) as { rows: number }).rows,
      (runLaunchRule("test", kernel, {}, device).given as { threadgroups: number[] }).threadgroups[0],
    ];
    expect([rows(on("metal")), rows(on("cuda")), rows(on("metal", "cuda"))]).toEqual([
      [7, 7],
      [9, 9],
      [9, 9],
    ]);
    expect(constantsOf(kernel, on("cuda"))).toEqual({ heads: 3, threads: 32, rows: 9 });
    expect(paramsHeader(kernel as never)).toContain(
      "#define OVERRUN_THREADS 32\n#ifdef MLXTS_CUDA\n#define OVERRUN_ROWS 9\n#else\n#define OVERRUN_ROWS 7\n#endif\n",
    );
    const contracts = (cuda: { rows: number }) =>
      (["cpu", "cuda"] as const).map((kind) => contractOf(declared(cuda), kind));
    const [cpu, cuda] = contracts({ rows: 9 });
    expect(contracts({ rows: 10 })).toEqual([cpu, expect.not.toBeOneOf([cuda])]);
  });

  it("a kernel without a rule for a device is not found there", () => {
    const { library, name, variants } = overrunKernel;
    const gpuOnly = defineKernel({
      ...{ library, name, variants, buffers: { out: "write" }, params: {} },
      launch: { gpu: (_: object) => ({ threadgroups: [1, 1, 1] }) },
    });
    const out = plain.tensor("u32", [3]);
    expect(() =>
      plain.encoder().dispatch(gpuOnly, { variant: "u32", buffers: { out }, params: {}, sizes: {} }),
    ).toThrow(expect.objectContaining({ code: "KernelNotFound" }));
  });

  it("stand in the header, each under its condition", () => {
    const text = paramsHeader(overrunKernel as never);
    expect(text).toContain(
      "#define OVERRUN_HEADS 3\n#ifdef __METAL_VERSION__\n#define OVERRUN_ROWS 7\n#else\n#define OVERRUN_ROWS 5\n#endif\n",
    );
    expect(text).toContain(
      "#ifndef __METAL_VERSION__\n  uint32_t columns;\n  uint32_t scratch[3];  // byte offsets\n#endif\n",
    );
    expect(text).toContain("struct OverrunScratch {\n  float* state;\n  uint8_t* nothing;\n  uint16_t* codes;\n};\n");
  });

  it.each<[string, object, string]>([
    [
      "a constant of both",
      { constants: { shared: { rows: 1 }, gpu: { rows: 1 } } },
      "`rows` must be shared or of a world, got both",
    ],
    [
      "a constant of NVIDIA's GPUs alone",
      { constants: { gpu: { rows: 1 }, cuda: { columns: 1 } } },
      "`constants.cuda` must have names of constants.gpu, got columns",
    ],
    [
      "a parameter of both",
      { launchParams: { cpu: { array: "u32" } } },
      "`array` must be in params or in launchParams, got both",
    ],
    ["a third world", { scratch: { tpu: {} } }, "`tpu` must be one of cpu, gpu, got an unknown option"],
    ["no rule", { launch: {} }, "`launch` must have a rule for cpu or gpu, got Object"],
    ["no function", { launch: { cpu: 1 } }, "`launch.cpu` must be a function, got 1"],
    ["no dtype", { scratch: { cpu: { state: "f64" } } }, "`state` must be a dtype, got f64"],
  ])("refuse %s", (_, change, text) => {
    const { library, name, variants, buffers, params } = overrunKernel;
    const launch = { cpu: () => ({ threadgroups: [1, 1, 1] }) };
    expect(message(() => defineKernel({ library, name, variants, buffers, params, launch, ...change } as never))).toBe(
      `defineKernel: ${text}`,
    );
  });
});
