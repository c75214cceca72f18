// What was measured of a model as rows of a report, with what is demanded of them.
import { spreadOf } from "@mlxts/bench";
import type { DeviceKind } from "@mlxts/core";
import type { DecodeResult, MemoryResult, MemorySpeed, PrefillResult } from "./bench_measure.ts";
import { type BenchRow, digits, type Limit, type PeerTime, type Target } from "./bench_report.ts";

/** What is measured, by every library in turn. */
export type Measure =
  | { kind: "prefill"; tokens: number; times: number }
  | { kind: "decode"; after: number; tokens: number };

/** Its row's name and case, without the dtype. */
export const measureTexts = (measure: Measure): [name: string, setting: string] =>
  measure.kind === "prefill" ? ["prefill", `${measure.tokens} tokens`] : ["decode", `after ${measure.after} tokens`];

/** Beyond this many tokens a decode step reads so much of the caches that weights are not its limit. */
const LONG_CONTEXT = 1024;

/** How many times as fast as llama.cpp Qwen3.5-0.8B must be; by dtype, for decode of short contexts also by threads. */
const PREFILL_TARGETS: Readonly<Record<string, number>> = { bf16: 1.7, f32: 1.1 };
const DECODE_TARGETS: Readonly<Record<string, Readonly<Record<number, number>>>> = {
  bf16: { 1: 1.15, 2: 1.1 },
  f32: { 1: 1, 2: 1 },
};
const LONG_DECODE_TARGET = 2;
/** How long a step may take, in times that reading the weights once takes; a GPU reads at 60 % of its memory's speed. */
const STEP_TARGET = 1.3;
const GPU_STEP_TARGET = 1.67;
/** How long the first prefill of a process may take, in times of later ones. */
const FIRST_PREFILL_TARGET = 1.2;
/** Memory that opening may take beside the mapped file, as a part of the file. */
const OPENING_TARGET = 0.05;
/** MiB that all tokens after the first ones may leave behind, beside caches: less than the system's pages vary by. */
const GROWTH_TARGET = 0.5;

/** A setting in which all libraries were measured, and what others did. */
export interface Setting {
  device: DeviceKind;
  threads: number;
  dtype: string;
  peer: { name: string; tokensPerSecond: readonly number[] } | undefined;
  /** Whether targets against other libraries are set for this model. */
  hasPeerTargets: boolean;
  /** Why a peer is missing. */
  note: string | null;
}

const atMost = (value: number, text: string, ours: number): Target => ({ value, text, met: ours <= value });

const row = (
  { threads, dtype }: Pick<Setting, "threads" | "dtype">,
  [name, setting]: readonly [name: string, setting: string],
  unit: BenchRow["unit"],
  values: readonly number[],
  rest: Partial<BenchRow> = {},
): BenchRow => ({
  name,
  case: `${setting}, ${dtype}`,
  threads,
  unit,
  ours: spreadOf(values),
  peers: [],
  limit: null,
  work: null,
  target: null,
  base: null,
  note: null,
  ...rest,
});

/** How many times as fast as a peer ours must be; undefined where nothing is demanded. */
function demanded(measure: Measure, { dtype, threads, hasPeerTargets }: Setting): number | undefined {
  if (!hasPeerTargets) return undefined;
  if (measure.kind === "prefill") return PREFILL_TARGETS[dtype];
  return measure.after > LONG_CONTEXT ? LONG_DECODE_TARGET : DECODE_TARGETS[dtype]?.[threads];
}

/** The row of a speed in tokens a second. */
function speedRow(measure: Measure, setting: Setting, speeds: readonly number[], limit: Limit | null): BenchRow {
  const { peer, note } = setting;
  const peers: PeerTime[] = peer ? [{ name: peer.name, ...spreadOf(peer.tokensPerSecond) }] : [];
  const factor = demanded(measure, setting);
  const target = ([best]: readonly PeerTime[]): Target | null => {
    if (!best || factor === undefined) return null;
    const value = factor * best.median;
    return { value, text: `${factor} × ${best.name}`, met: spreadOf(speeds).median >= value };
  };
  return row(setting, measureTexts(measure), "tokens/s", speeds, { peers, limit, target: target(peers), note });
}

/** Rows of prefill: its speed, and how much longer the first pass of a process takes. */
export function prefillRows(
  measure: Measure & { kind: "prefill" },
  setting: Setting,
  results: readonly PrefillResult[],
): BenchRow[] {
  const later = results.flatMap(({ laterMs }) => laterMs);
  const speeds = later.map((ms) => (measure.tokens * 1000) / ms);
  const usual = spreadOf(later).median;
  const ratios = results.map(({ firstMs }) => firstMs / usual);
  const target = atMost(FIRST_PREFILL_TARGET, `${FIRST_PREFILL_TARGET} × later ones`, spreadOf(ratios).median);
  return [
    speedRow(measure, setting, speeds, null),
    row(setting, ["first prefill / later", `${measure.tokens} tokens`], "ratio", ratios, { target }),
  ];
}

/**
 * Rows of decode: its speed beside other libraries, and a step's time beside that of reading the weights once, at the rate
 * that was measured between the steps, or else before them.
 */
export function decodeRows(
  measure: Measure & { kind: "decode" },
  setting: Setting,
  results: readonly DecodeResult[],
  before: MemorySpeed,
): BenchRow[] {
  const speeds = results.map(({ tokensPerSecond }) => tokensPerSecond);
  const [{ bytesRead }] = results as [DecodeResult];
  const of = `reading ${digits(bytesRead / 1e6)} MB of weights`;
  const rates = results.map(({ memoryGBs = before.memoryGBs }) => memoryGBs);
  const ms = bytesRead / spreadOf(rates).median / 1e6;
  const speed = speedRow(measure, setting, speeds, { value: 1000 / ms, of });
  if (measure.after > LONG_CONTEXT) return [speed];
  const steps = speeds.map((each) => 1000 / each);
  const factor = setting.device === "cpu" ? STEP_TARGET : GPU_STEP_TARGET;
  const target = atMost(factor * ms, `${factor} × the limit`, spreadOf(steps).median);
  const [, texts] = measureTexts(measure);
  return [speed, row(setting, ["decode step", texts], "ms", steps, { limit: { value: ms, of }, target })];
}

/** Rows of opening the checkpoint and of memory. */
export function memoryRows(
  place: Pick<Setting, "threads" | "dtype">,
  { loadMs, openedBytes, weightBytes, grownBytes, tokens }: MemoryResult,
): BenchRow[] {
  const mib = (bytes: number) => `${digits(bytes / 2 ** 20)} MiB`;
  const part = openedBytes / weightBytes;
  const grown = grownBytes / 2 ** 20;
  return [
    row(place, ["opening", "time"], "ms", [loadMs]),
    row(place, ["opening", "memory beside the mapped file / its size"], "ratio", [part], {
      target: atMost(OPENING_TARGET, `${OPENING_TARGET} of the file`, part),
      note: `${mib(openedBytes)} beside ${mib(weightBytes)}`,
    }),
    row(place, ["decode", `memory left by ${tokens} tokens, without caches`], "MiB", [grown], {
      target: atMost(GROWTH_TARGET, "nothing that grows", grown),
    }),
  ];
}
