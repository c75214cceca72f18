import type { ErrorClass } from "@mlxts/core/testing";
import type { System } from "./about.ts";
import type { CaseName, DeviceAbout, KernelName, Outcome } from "./verify_child.ts";

/** A case with its verdict, as in the JSON report, where numbers that are not finite are null. */
export interface CaseReport {
  op: string;
  dtype: string;
  case: string;
  pass: boolean;
  message: string;
  ms: number;
  deviceMs: number;
  kernels: readonly string[];
  outputs: readonly {
    output: string;
    pass: boolean;
    message: string;
    dtype?: string;
    errorClass?: ErrorClass;
    /** rms(error) / rms(reference). */
    ratio?: number;
    /** The limit of `ratio`; 0 where bits are compared. */
    bar?: number;
    maxError?: number;
    /** rms of the reference. */
    scale?: number;
  }[];
}

export interface Row {
  op: string;
  dtype: string;
  cases: number;
  passed: number;
  failed: number;
  /** Whether outputs were compared bit by bit. */
  exact: boolean;
  /** The output nearest to its bar, or above it; null where there is none with a bar. */
  worst: { case: string; output: string; ratio: number; bar: number } | null;
  ms: number;
  deviceMs: number;
}

/** Variants by kernel: `{"rms_norm": ["f32_f32"]}`. */
export type Symbols = Readonly<Record<string, readonly string[]>>;

export interface Report {
  tool: "mlxts verify";
  versions: Record<string, string>;
  system: System;
  device: DeviceAbout;
  date: string;
  /** Whether every op has cases, every case passed and, unless only some ops were asked for, every kernel ran. */
  pass: boolean;
  /** Why not all cases were run, or null. */
  stopped: string | null;
  /** Ops that were asked for and have no cases. */
  withoutCases: readonly string[];
  summary: { cases: number; passed: number; failed: number; notRun: number; ms: number };
  rows: readonly Row[];
  kernels: {
    run: Symbols;
    /** Kernels of the device that no case dispatched; null when not all ops were asked for or not all cases were run. */
    neverRun: Symbols | null;
    /** Declared kernels that this device's libraries do not have. */
    notOnDevice: Symbols | null;
  };
  cases: readonly CaseReport[];
}

/** Milliseconds with three decimals. */
export const rounded = (ms: number) => Math.round(1000 * ms) / 1000;

export function caseReport({ op, dtype, name }: CaseName, { outputs, ...outcome }: Outcome): CaseReport {
  return {
    op,
    dtype,
    case: name,
    ...outcome,
    ms: rounded(outcome.ms),
    deviceMs: rounded(outcome.deviceMs),
    outputs: outputs.map(({ output, pass, message, compared: c }) => ({
      output,
      pass,
      message,
      ...(c && {
        dtype: c.dtype,
        errorClass: c.errorClass,
        ratio: c.ratio,
        bar: c.bar,
        maxError: c.maxAbs,
        scale: c.scale,
      }),
    })),
  };
}

function worstOf(cases: readonly CaseReport[]): Row["worst"] {
  let worst: Row["worst"] = null;
  for (const each of cases)
    for (const { output, ratio, bar } of each.outputs)
      if (ratio !== undefined && bar && !(worst && ratio / bar <= worst.ratio / worst.bar))
        worst = { case: each.case, output, ratio, bar };
  return worst;
}

/** One row for each op and dtype, in the order in which they were run. */
export function rowsOf(cases: readonly CaseReport[]): Row[] {
  const groups = new Map<string, CaseReport[]>();
  for (const each of cases) {
    const key = `${each.op} ${each.dtype}`;
    const group = groups.get(key);
    if (group) group.push(each);
    else groups.set(key, [each]);
  }
  const sum = (group: readonly CaseReport[], key: "ms" | "deviceMs") => group.reduce((total, c) => total + c[key], 0);
  return [...groups.values()].map((group) => {
    const passed = group.filter(({ pass }) => pass).length;
    const { op, dtype } = group[0] as CaseReport;
    return {
      op,
      dtype,
      cases: group.length,
      passed,
      failed: group.length - passed,
      exact: group.some(({ outputs }) => outputs.some(({ errorClass }) => errorClass === "exact")),
      worst: worstOf(group),
      ms: rounded(sum(group, "ms")),
      deviceMs: rounded(sum(group, "deviceMs")),
    };
  });
}

/** Lines of a table: the first two columns are aligned to the left, the others to the right. */
function table(lines: readonly (readonly string[])[]): string[] {
  const widths = (lines[0] as readonly string[]).map((_, i) =>
    Math.max(...lines.map((line) => (line[i] ?? "").length)),
  );
  return lines.map((line) =>
    line
      .map((text, i) => (i < 2 ? text.padEnd(widths[i] as number) : text.padStart(widths[i] as number)))
      .join("  ")
      .trimEnd(),
  );
}

const seconds = (ms: number) => (ms / 1000).toFixed(2);

function rowText({ op, dtype, cases, passed, failed, worst, exact, ms }: Row): string[] {
  const numbers = worst
    ? [worst.ratio.toExponential(2), worst.bar.toExponential(), `${((100 * worst.ratio) / worst.bar).toFixed(0)} %`]
    : [exact ? "exact" : "-", "", ""];
  return [op, dtype, `${cases}`, `${passed}`, `${failed}`, ...numbers, seconds(ms)];
}

export function symbolsOf(kernels: readonly KernelName[]): Symbols {
  const symbols: Record<string, string[]> = {};
  for (const { name, variant } of kernels) {
    symbols[name] ??= [];
    symbols[name].push(variant);
  }
  return symbols;
}

const count = (symbols: Symbols | null) =>
  Object.values(symbols ?? {}).reduce((sum, variants) => sum + variants.length, 0);

/** Of a kernel with more variants the text gives their number only. */
const MAX_LISTED = 9;

/** `  rms_norm: f32_f32 f16_f16`; with `short` many variants of a kernel are only counted. */
const symbolLines = (symbols: Symbols, short: boolean) =>
  Object.entries(symbols).map(([name, variants]) => {
    const few = !short || variants.length <= MAX_LISTED;
    return `  ${name}: ${few ? variants.join(" ") : `${variants.length} variants`}`;
  });

/** The most failures that the text shows. */
const MAX_SHOWN = 10;

function failureLines(cases: readonly CaseReport[]): string[] {
  const failures = cases.filter(({ pass }) => !pass);
  if (failures.length === 0) return [];
  const lines = failures.slice(0, MAX_SHOWN).flatMap((f) => [`  ${f.op} ${f.dtype} ${f.case}`, `    ${f.message}`]);
  const more = failures.length - MAX_SHOWN;
  return ["", "Failures", ...lines, ...(more > 0 ? [`  … and ${more} more; --json FILE keeps all of them`] : [])];
}

function kernelLines({ run, neverRun, notOnDevice }: Report["kernels"]): string[] {
  const block = (title: string, symbols: Symbols | null, short: boolean) => [
    "",
    `${title}: ${count(symbols)}`,
    ...symbolLines(symbols ?? {}, short),
  ];
  return [
    ...block("Kernels run", run, true),
    ...(count(notOnDevice) > 0 ? block("Kernels that this device does not have", notOnDevice, true) : []),
    ...(count(neverRun) > 0 ? block("NEVER RUN: kernels of this device that no case dispatched", neverRun, false) : []),
  ];
}

function conclusion({ pass, stopped, withoutCases, summary, kernels, device }: Report): string {
  const { cases, passed, failed, notRun } = summary;
  const where = `on ${device.name}`;
  const unseen = count(kernels.neverRun);
  if (pass) return `PASS: all ${cases} cases passed ${where}, in ${seconds(summary.ms)} s`;
  const faults = [
    ...(stopped ? [stopped] : []),
    ...(failed > 0 ? [`${failed} of ${cases} cases failed`] : []),
    ...(notRun > 0 ? [`${notRun} were not run`] : []),
    ...(withoutCases.length > 0 ? [`no cases of ${withoutCases.join(", ")}`] : []),
    ...(unseen > 0 ? [`${unseen} kernels never ran`] : []),
  ];
  return `FAIL ${where}: ${faults.join("; ")} (${passed} passed)`;
}

/** The report as text. */
export function reportText(report: Report): string {
  const { versions, system, device, rows, cases, kernels } = report;
  const { mlxts, ...packages } = versions;
  const level = device.level === "" ? "" : `, kernels ${device.level}`;
  return [
    `mlxts verify ${mlxts}, ${report.date}`,
    `device    ${device.kind}: ${device.name}${level}`,
    `system    ${system.os}, ${system.platform} ${system.arch}, ${system.cpu}, Node ${system.node}`,
    `packages  ${Object.entries(packages)
      .map(([name, version]) => `${name} ${version}`)
      .join(", ")}`,
    "",
    ...table([
      ["op", "dtype", "cases", "passed", "failed", "worst ratio", "bar", "of bar", "seconds"],
      ...rows.map(rowText),
    ]),
    ...failureLines(cases),
    ...kernelLines(kernels),
    "",
    conclusion(report),
    "",
  ].join("\n");
}

/** The report as JSON: indented, with one line for each case. */
export function reportJson(report: Report): string {
  const cases = report.cases.map((each) => `    ${JSON.stringify(each)}`).join(",\n");
  const text = JSON.stringify({ ...report, cases: [] }, null, 2);
  return `${text.slice(0, text.lastIndexOf("[]"))}[\n${cases}\n  ]\n}\n`;
}
