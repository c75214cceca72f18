import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { DeclaredKernel, Suite } from "@mlxts/core/testing";
import { bundled } from "@mlxts/test-kit/bundled";
import { clangMissing } from "@mlxts/test-kit/clang";
import { temporaryFolder } from "@mlxts/test-kit/temporary_folder";
import { describe, expect, it } from "vitest";
import { publicOps } from "../src/op_list.ts";
import { makeReport, runCases } from "../src/verify.ts";
import { type Report, reportJson, reportText } from "../src/verify_report.ts";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const folder = temporaryFolder("verify");

/** The room that tests have for their heap (vitest.config.ts). */
const HEAP = process.execArgv.filter((flag) => /^--.*(space-size|growing-percent)=/.test(flag));

function mlxts(args: string[], env: Record<string, string> = {}) {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [...HEAP, join(root, "apps", "cli", "bin", "mlxts.mjs"), ...args],
    { encoding: "utf8", env: { ...process.env, MLXTS_DEVICE: "", MLXTS_METAL_SIM: "", ...env } },
  );
  return { status, stdout, stderr };
}

/** The text without times, dates and machines, which differ. */
const masked = (text: string) =>
  text
    .replace(/^mlxts verify .*\n(.*\n){3}/, "HEADER\n")
    .replace(/\d+\.\d\d$/gm, "TIME")
    .replace(/in \d+\.\d\d s/, "in TIME")
    .replace(/ +TIME/g, " TIME")
    .replace(/ on .*?([:,])/g, " on DEVICE$1");

/** All cases passed. Their number is not fixed here: suites may change. */
const uncounted = (text: string) =>
  text.replace(/ +(\d+) +\1 +0 /g, " ALL ALL 0 ").replace(/all \d+ cases/, "all cases");

describe("mlxts verify", () => {
  it("confirms products of bf16 in the way that is not this processor's own", () => {
    const other = cpus()[0]?.model.includes("Intel") ? "1" : "0";
    const args = ["verify", "--device", "cpu", "--op", "sdpa", "mlaAttention"];
    const { status, stderr } = mlxts(args, { MLXTS_BF16_DOTS: other });
    expect([status, stderr]).toEqual([0, ""]);
  });

  it("confirms an op on the CPU, and reports each case", () => {
    const json = join(folder, "l2.json");
    const { status, stdout, stderr } = mlxts(["verify", "--device", "cpu", "--op", "slice", "argmax", "--json", json]);
    expect([status, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(
      /^mlxts verify \d+\.\d+\.\d+, \d{4}-.*Z\ndevice {4}cpu: .+, kernels \w+\nsystem {4}.+, Node \d+.*\npackages {2}@mlxts\/core \d/,
    );
    expect(uncounted(masked(stdout))).toBe(`HEADER

op      dtype  cases  passed  failed  worst ratio  bar  of bar  seconds
slice   f32 ALL ALL 0        exact TIME
slice   f16 ALL ALL 0        exact TIME
slice   bf16 ALL ALL 0        exact TIME
argmax  f32 ALL ALL 0        exact TIME
argmax  f16 ALL ALL 0        exact TIME
argmax  bf16 ALL ALL 0        exact TIME

Kernels run: 6
  argmax: f32 f16 bf16
  slice: u8 u16 u32

PASS: all cases passed on DEVICE, in TIME
`);
    const report = JSON.parse(readFileSync(json, "utf8"));
    expect(report).toMatchObject({
      tool: "mlxts verify",
      versions: {
        mlxts: expect.any(String),
        "@mlxts/core": expect.stringMatching(/^\d/),
        "@mlxts/nn": expect.any(String),
      },
      system: { platform: process.platform, arch: process.arch, node: process.versions.node },
      device: {
        kind: "cpu",
        name: expect.any(String),
        level: expect.any(String),
        limits: { threads: expect.any(Number) },
      },
      pass: true,
      stopped: null,
      withoutCases: [],
      summary: {
        cases: report.cases.length,
        passed: report.cases.length,
        failed: 0,
        notRun: 0,
        ms: expect.any(Number),
      },
      kernels: { run: { slice: ["u8", "u16", "u32"] }, neverRun: null, notOnDevice: null },
    });
    expect(report.rows).toHaveLength(6);
    expect(report.cases.length).toBeGreaterThan(100);
    for (const each of report.cases)
      expect(each).toEqual({
        op: expect.stringMatching(/^(slice|argmax)$/),
        dtype: expect.stringMatching(/^(f32|f16|bf16)$/),
        case: expect.any(String),
        pass: true,
        message: "",
        ms: expect.any(Number),
        deviceMs: expect.any(Number),
        kernels: [expect.stringMatching(/^(slice|argmax)_/)],
        outputs: [
          {
            output: expect.any(String),
            pass: true,
            message: "",
            dtype: expect.any(String),
            errorClass: "exact",
            ratio: 0,
            bar: 0,
            maxError: 0,
            scale: expect.toSatisfy((scale: unknown) => scale === null || typeof scale === "number"),
          },
        ],
      });
  });

  it("runs every kernel of the CPU", { timeout: 300_000 }, () => {
    const json = join(folder, "all.json");
    const { status, stdout } = mlxts(["verify", "--device", "cpu", "--json", json]);
    const { kernels, withoutCases } = JSON.parse(readFileSync(json, "utf8")) as Report;
    expect({ status, neverRun: kernels.neverRun, withoutCases }, stdout).toEqual({
      status: 0,
      neverRun: {},
      withoutCases: [],
    });
  });

  it.each([
    [["--op", "nothing"], 1, "KernelNotFound: verify: no op is called nothing; `mlxts op --list` names them all\n"],
    [["--device", "vulkan"], 2, "verify: `--device` must be one of cpu, metal, cuda, got vulkan\n"],
    [["--op"], 2, "verify: `--op` must be followed by <name>, got nothing\n"],
    [
      ["--op", "slice", "--json", "/no/where.json"],
      1,
      "Io: verify: `--json` must be in a directory that exists, got /no/where.json\n",
    ],
  ])("%j is refused", (args, status, message) => {
    expect(mlxts(["verify", ...args])).toEqual({ status, stdout: "", stderr: message });
  });

  it.skipIf(process.platform === "darwin")("says why there is no such device", () => {
    expect(mlxts(["verify", "--device", "metal", "--op", "slice"])).toEqual({
      status: 1,
      stdout: "",
      stderr: "DeviceNotFound: no device found: metal (this build has no metal device)\n",
    });
  });
});

const FAULTY = bundled("apps/cli/test/faulty_suites.ts");

describe("verify on faulty ops", () => {
  const verify = async (ops: string[], expected = ops) =>
    makeReport(await runCases({ device: "cpu", modules: [await FAULTY], ops }), expected, true);

  it("continues after failures and crashes, and shows them", async () => {
    const report = await verify(["right", "wrong", "throwing", "crashing", "unsteady", "last"]);
    expect(report.pass).toBe(false);
    const text = masked(reportText(report));
    expect(text.replace(/ratio .*? at rms \S+/g, "FIGURES").replace(/\d\.\d\de[-+]\d+ .*? %/g, "FIGURES")).toBe(`HEADER

op        dtype  cases  passed  failed  worst ratio   bar      of bar  seconds
right     f32        2       2       0      FIGURES TIME
wrong     f32        2       0       2      FIGURES TIME
throwing  f32        2       0       2            - TIME
crashing  f32        2       1       1      FIGURES TIME
unsteady  f32        2       0       2            - TIME
last      f32        2       2       0      FIGURES TIME

Failures
  wrong f32 case 1
    \`out\`: FIGURES
  wrong f32 case 2
    \`out\`: FIGURES
  throwing f32 case 1
    no such luck
  throwing f32 case 2
    no such luck
  crashing f32 case 1
    the process that ran this case ended with signal SIGKILL
  unsteady f32 case 1
    \`out\`: bits differ between thread counts, orders or scratch contents
  unsteady f32 case 2
    \`out\`: bits differ between thread counts, orders or scratch contents

Kernels run: 1
  l2_norm: f32

Kernels that this device does not have: 1
  not_there: f32

NEVER RUN: kernels of this device that no case dispatched: 2
  l2_norm: f16 bf16

FAIL on DEVICE: 7 of 12 cases failed; 2 kernels never ran (5 passed)
`);
    const json = JSON.parse(reportJson(report));
    expect(json).toEqual(JSON.parse(JSON.stringify(report)));
    const wrong = json.cases.find(({ op }: { op: string }) => op === "wrong").outputs[0];
    expect(wrong).toMatchObject({ output: "out", pass: false, dtype: "f32", errorClass: "S", bar: 5e-7 });
    expect(wrong.ratio).toBeGreaterThan(0.01);
    expect(json.rows[1].worst).toMatchObject({ output: "out", ratio: wrong.ratio, bar: 5e-7 });
  });

  it("ends when the device is lost", async () => {
    const report = await verify(["right", "losing", "last"]);
    expect(report).toMatchObject({ pass: false, summary: { cases: 6, passed: 2, failed: 1, notRun: 3 } });
    expect(report.kernels).toEqual({ run: { l2_norm: ["f32"] }, neverRun: null, notOnDevice: null });
    expect(masked(reportText(report)).trimEnd().split("\n").at(-1)).toBe(
      "FAIL on DEVICE: the device was lost: CommandBuffer: losing: the device has been lost; 1 of 6 cases failed; 3 were not run (2 passed)",
    );
  });

  it("does not pass without cases", async () => {
    const report = await verify(["right"], ["right", "absent"]);
    expect(report).toMatchObject({ pass: false, withoutCases: ["absent"], summary: { failed: 0, notRun: 0 } });
    expect(reportText(report)).toContain("no cases of absent");
  });

  it("is refused where its process cannot start", async () => {
    const job = { device: "cpu" as const, modules: ["data:text/javascript,process.exit(3)"], ops: [] };
    await expect(runCases(job)).rejects.toThrow("verify: the process that runs the cases did not start: exit code 3");
  });
});

const simulator = JSON.parse(mlxts(["devices", "--json"], { MLXTS_METAL_SIM: "1" }).stdout)[1] as {
  available: boolean;
  reason?: string;
};
/** Why nothing runs on the simulated device, or undefined. */
const missing = simulator.available ? clangMissing() : simulator.reason;
const name = "verify on the Metal simulator";
describe.skipIf(missing)(missing === undefined ? name : `${name} (skipped: ${missing})`, () => {
  const args = ["verify", "--device", "metal", "--op", "l2Norm"];

  it("runs the Metal kernels", () => {
    const { status, stdout, stderr } = mlxts(args, { MLXTS_METAL_SIM: "1" });
    expect([status, stderr]).toEqual([0, ""]);
    expect(stdout).toMatch(/^device {4}metal: .*simulator/m);
    expect(stdout).toContain("  l2_norm: f32 f16 bf16\n");
    expect(stdout).toMatch(/\nPASS: all 228 cases passed on .*simulator/);
  });

  it("ends when the device is lost", () => {
    const { status, stdout } = mlxts(args, { MLXTS_METAL_SIM: "1", MLXTS_METAL_SIM_FAULT: "fail:deviceRemoved" });
    expect(status).toBe(1);
    expect(stdout).toMatch(
      /\nFAIL on .*: the device was lost: .*; 1 of 228 cases failed; 227 were not run \(0 passed\)\n$/,
    );
  });
});

interface Testing {
  suites: readonly Suite[];
  kernels: readonly DeclaredKernel[];
}

describe("what op packages publish for verify", () => {
  const packages = [...new Set([...publicOps().values()].map((op) => op.package))];

  it.each(packages)("%s: suites of all its ops, and all its kernels", async (name) => {
    const { suites, kernels } = (await import(`${name}/testing`)) as Testing;
    const ops = [...publicOps()].filter(([, op]) => op.package === name).map(([op]) => op);
    expect([...new Set(suites.map(({ op }) => op.op.name))].sort()).toEqual(ops.sort());
    const source = join(root, "packages", name.slice("@mlxts/".length), "src");
    const declared = new Set<unknown>();
    for (const file of readdirSync(source))
      for (const value of Object.values(await import(pathToFileURL(join(source, file)).href)))
        if (value !== null && typeof value === "object" && "bufferNames" in value) declared.add(value);
    expect(new Set(kernels)).toEqual(declared);
  });
});
