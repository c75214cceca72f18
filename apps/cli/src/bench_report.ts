import type { Limits, Spread } from "@mlxts/bench";
import type { System } from "./about.ts";

/** What the same work takes elsewhere. */
export interface PeerTime extends Spread {
  /** The library and what of it, as `onnxruntime MatMulNBits`. */
  name: string;
}

/** What the machine allows, or what a peer does, as a value in the row's unit. */
export interface Limit {
  value: number;
  /** What it follows from, as `memory` or `bf16 products`. */
  of: string;
}

/** What a row should reach. */
export interface Target {
  /** The row's value at most (a time) or at least (tokens a second). */
  value: number;
  /** What it is a multiple of, as `1.2 × the limit` or `1.15 × llama.cpp`. */
  text: string;
  met: boolean;
}

/** One line of a report: one setting on some threads. */
export interface BenchRow {
  /** The op, or what of a model, as `decode`. */
  name: string;
  case: string;
  threads: number;
  /** µs and ms: less is better; tokens/s: more is. Ratio and MiB: less is. */
  unit: "µs" | "ms" | "tokens/s" | "ratio" | "MiB";
  /** Null when it was not measured; `note` says why. */
  ours: Spread | null;
  peers: readonly PeerTime[];
  limit: Limit | null;
  /** Bytes moved and operations of one call, for the roofline; null where they are not known. */
  work: { bytes: number; operations: number } | null;
  target: Target | null;
  /** The other revision, measured in turn, and ours as a multiple of it. */
  base: { revision: string; spread: Spread; ratio: number } | null;
  note: string | null;
}

/** Whether a greater value is better. */
export const moreIsBetter = ({ unit }: Pick<BenchRow, "unit">) => unit === "tokens/s";

/** Ours beside the limit: of a rate, how many percent of it; of a time, which multiple. */
export function besideLimit(row: BenchRow): string | null {
  if (!row.ours || !row.limit) return null;
  const part = row.ours.median / row.limit.value;
  return moreIsBetter(row) ? `${digits(100 * part)} %` : `${digits(part)} ×`;
}

/** The peer that is fastest. */
export function bestPeer(row: BenchRow): PeerTime | null {
  const sign = moreIsBetter(row) ? -1 : 1;
  return row.peers.reduce<PeerTime | null>(
    (best, peer) => (best && sign * best.median <= sign * peer.median ? best : peer),
    null,
  );
}

/** How many times faster ours is than the fastest peer. */
export function timesPeer(row: BenchRow): number | null {
  const peer = bestPeer(row);
  if (!row.ours || !peer) return null;
  return moreIsBetter(row) ? row.ours.median / peer.median : peer.median / row.ours.median;
}

export interface BenchReport {
  tool: "mlxts bench op" | "mlxts bench machine" | "mlxts bench model";
  versions: Record<string, string>;
  system: System;
  /** Of the device: `cpu` and its instruction-set level. */
  device: { kind: string; name: string; level: string };
  date: string;
  /** What was measured and how, by title, where the command line does not say it. */
  settings?: Readonly<Record<string, string>>;
  /** Measured in the same run, for each number of threads. */
  limits: readonly Limits[];
  /** Ops whose conformance cases were run before; null when they were not. */
  verified: readonly string[] | null;
  rows: readonly BenchRow[];
}

/** A number with three digits, as people read it. */
export function digits(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toString();
  return Number(value.toPrecision(3)).toString();
}

/** Text in a cell of a Markdown table. */
const cell = (text: string) => text.replaceAll("\\", "\\\\").replaceAll("|", "\\|").replaceAll("\n", " ");

function table({ head, lines }: Table): string[] {
  const line = (cells: readonly string[]) => `| ${cells.map(cell).join(" | ")} |`;
  return [line(head), `|${" --- |".repeat(head.length)}`, ...lines.map(line)];
}

const spreadText = ({ median, least, most }: Spread) => `${digits(median)} (${digits(least)} – ${digits(most)})`;

/** 10⁹ of so much work in a second; a row's times are in µs then. */
const rateText = ({ ours, unit }: BenchRow, work: number | undefined) =>
  ours && work && unit === "µs" ? digits(work / ours.median / 1e3) : "";

interface Table {
  head: readonly string[];
  lines: readonly (readonly string[])[];
}

/** The rows of a report; columns that no row fills are left out. */
export function rowsTable({ rows }: BenchReport): Table {
  const has = (test: (row: BenchRow) => unknown) => rows.some(test);
  const base = has((row) => row.base);
  const peers = has((row) => row.peers.length > 0);
  const targets = has((row) => row.target);
  const notes = has((row) => row.note);
  const rates = has((row) => row.work) && !has((row) => row.limit);
  const head = [
    "what",
    "case",
    "threads",
    "median (least – most)",
    "unit",
    ...(base ? [`base ${rows.find((row) => row.base)?.base?.revision}`, "this / base"] : []),
    ...(rates ? ["GB/s", "GFLOP/s"] : ["limit", "beside it"]),
    ...(peers ? ["best peer", "its median", "× as fast"] : []),
    ...(targets ? ["target", "met"] : []),
    ...(notes ? ["note"] : []),
  ];
  const optional = (value: number | null) => (value === null ? "" : digits(value));
  const lines = rows.map((row) => {
    const peer = bestPeer(row);
    return [
      row.name,
      row.case,
      String(row.threads),
      row.ours ? spreadText(row.ours) : "–",
      row.unit,
      ...(base ? [row.base ? spreadText(row.base.spread) : "", optional(row.base?.ratio ?? null)] : []),
      ...(rates
        ? [rateText(row, row.work?.bytes), rateText(row, row.work?.operations)]
        : [
            row.limit ? `${digits(row.limit.value)} (${row.limit.of})` : "",
            besideLimit(row)?.replace(" of", "") ?? "",
          ]),
      ...(peers ? [peer?.name ?? "", optional(peer?.median ?? null), optional(timesPeer(row))] : []),
      ...(targets ? [row.target ? `${digits(row.target.value)} (${row.target.text})` : "", metText(row)] : []),
      ...(notes ? [row.note ?? ""] : []),
    ];
  });
  return { head, lines };
}

/** The measured limits of a report; tiles where the machine's kernels have them. */
export function limitsTable({ limits }: BenchReport): Table {
  const columns: [string, (limits: Limits) => number | null][] = [
    ["f32 GFLOP/s", ({ gflopsF32 }) => gflopsF32],
    ["bf16 GFLOP/s", ({ gflopsBf16 }) => gflopsBf16],
    ["int8 GOP/s", ({ gopsInt8 }) => gopsInt8],
    ["bf16 tiles GFLOP/s", ({ gflopsBf16Tiles }) => gflopsBf16Tiles],
    ["int8 tiles GOP/s", ({ gopsInt8Tiles }) => gopsInt8Tiles],
    ["memory GB/s", ({ memoryGBs }) => memoryGBs],
    ["shared cache GB/s", ({ sharedCacheGBs }) => sharedCacheGBs],
    ["core caches GB/s", ({ coreCacheGBs }) => coreCacheGBs],
  ];
  const shown = columns.filter(([, value]) => limits.some((each) => value(each) !== null));
  return {
    head: ["threads", ...shown.map(([title]) => title)],
    lines: limits.map((each) => [String(each.threads), ...shown.map(([, value]) => digits(value(each) ?? 0))]),
  };
}

/** A report as Markdown. */
export function reportMarkdown(report: BenchReport): string {
  const { system, device, rows, settings } = report;
  return [
    `# ${report.tool}`,
    "",
    `${system.cpu}, ${system.os}, Node.js ${system.node}; ${device.kind}, kernels ${device.level}; ${report.date}.`,
    ...verifiedText(report),
    ...(settings ? ["", ...Object.entries(settings).map(([title, text]) => `- ${title}: ${cell(text)}`)] : []),
    ...(report.limits.length > 0 ? ["", ...table(limitsTable(report))] : []),
    ...(rows.length > 0 ? ["", ...table(rowsTable(report))] : []),
    "",
  ].join("\n");
}

const metText = ({ target }: BenchRow) => (target === null ? "" : target.met ? "yes" : "no");

export function verifiedText({ tool, verified }: BenchReport): string[] {
  if (tool !== "mlxts bench op") return [];
  return [verified ? `The conformance cases of each op were run first.` : "The ops' conformance cases were not run."];
}
