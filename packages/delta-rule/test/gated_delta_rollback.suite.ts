import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { gatedDeltaRollback } from "../src/index.ts";
import { gatedDeltaRollbackReference, type RuleLog, type RuleReferenceOptions } from "../src/reference.ts";

interface Shape {
  N: number;
  n: number;
  Hk: number;
  H: number;
  K: number;
  V: number;
}

type Options = Partial<Pick<RuleReferenceOptions, "gate" | "gqa" | "stateLayout">>;

const BASE: Shape = { N: 2, n: 5, Hk: 1, H: 2, K: 40, V: 18 };
const random = new Random(51);
const size = (shape: readonly number[]) => shape.reduce((x, y) => x * y, 1);
const DRAW: Record<NonNullable<Options["gate"]>, () => number> = {
  ln: () => -random.uniform(),
  log2: () => -random.uniform(),
  linear: () => random.uniform(),
  "neg-ln": () => random.uniform(),
};

function make(
  setting: Partial<Shape> & { channels?: boolean; rejected?: readonly number[] },
  options: Options = {},
): Case {
  const { channels = false, rejected, ...rest } = setting;
  const { N, n, Hk, H, K, V } = { ...BASE, ...rest };
  const f32 = (shape: readonly number[], draw = () => random.normal()) => ({
    dtype: "f32" as const,
    shape,
    data: Float64Array.from({ length: size(shape) }, draw),
  });
  const state = options.stateLayout === "kv" ? [N, H, K, V] : [N, H, V, K];
  const counts = rejected ?? Array.from({ length: N }, (_, s) => s % (n + 1));
  return {
    name: `${JSON.stringify({ N, n, Hk, H, K, V, channels, ...options })} rejected ${counts}`.replaceAll('"', ""),
    inputs: {
      logState: f32(state),
      logKeys: f32([N, n, Hk, K], () => random.normal() / Math.sqrt(K)),
      logDeltas: f32([N, n, H, V]),
      logGates: f32([N, n, H, ...(channels ? [K] : [])], DRAW[options.gate ?? "ln"]),
      rejected: { dtype: "i32", shape: [N], data: counts },
    },
    options: { ...options },
    ask: { finalState: { dtype: "f32", shape: state } },
  };
}

const inPlace = (c: Case): Case => ({ ...c, inPlace: { finalState: "logState" } });

type Rollback = (shape: Shape, log: RuleLog, rejected: Float64Array, options: Options) => Float64Array;

const reference =
  (rollback: Rollback): ReferenceFunction =>
  (inputs, options: Options) => {
    const { logState, logKeys, logDeltas, logGates, rejected } = inputs as Record<string, Reference64> &
      Record<keyof RuleLog | "rejected", Reference64>;
    const [N, n, Hk, K] = logKeys.shape as [number, number, number, number];
    const [, , H, V] = logDeltas.shape as [number, number, number, number];
    const log = { logState: logState.data, logKeys: logKeys.data, logDeltas: logDeltas.data, logGates: logGates.data };
    return {
      finalState: { shape: logState.shape, data: rollback({ N, n, Hk, H, K, V }, log, rejected.data, options) },
    };
  };

/** The entries of each sequence, newest first. */
function reversed({ N, n }: Shape, data: Float64Array): Float64Array {
  const size = data.length / (N * n);
  const out = new Float64Array(data.length);
  for (let s = 0; s < N; s++)
    for (let i = 0; i < n; i++)
      out.set(data.subarray((s * n + i) * size, (s * n + i + 1) * size), (s * n + n - 1 - i) * size);
  return out;
}

const changed = (options: (given: Options) => Options): ReferenceFunction =>
  reference((shape, log, rejected, given) => gatedDeltaRollbackReference(shape, log, rejected, options(given)));

export const suite: Suite = {
  op: gatedDeltaRollback,
  errorClass: "R",
  dtypes: ["f32"],
  reference: reference(gatedDeltaRollbackReference),
  cases: [
    ...[0, 1, 4, 5].map((m) => make({ rejected: [m, 5 - m] })),
    ...[1, 3, 8, 20, 31, 64, 65, 96, 128, 129, 192, 250, 256].flatMap((K) => [
      make({ K }),
      make({ K, channels: true, N: 1, rejected: [1] }),
    ]),
    ...[1, 2, 3, 4, 5, 15, 16, 17, 32, 33, 100].map((V) => make({ V, N: V < 8 ? 20 : 2 })),
    ...[
      [2, 4],
      [2, 2],
      [3, 9],
    ].flatMap(([Hk, H]) => [
      make({ Hk: Hk as number, H: H as number }),
      make({ Hk: Hk as number, H: H as number }, { gqa: "tiled" }),
    ]),
    ...(["ln", "log2", "linear", "neg-ln"] as const).flatMap((gate) => [
      make({}, { gate }),
      make({ channels: true }, { gate }),
    ]),
    ...[
      [3, 5],
      [33, 17],
      [128, 33],
      [250, 47],
    ].flatMap(([K, V]) => [
      make({ K: K as number, V: V as number }, { stateLayout: "kv" }),
      inPlace(make({ K: K as number, V: V as number, channels: true }, { stateLayout: "kv" })),
    ]),
    inPlace(make({})),
    inPlace(make({ V: 35 }, { gqa: "tiled" })),
    make({ n: 1, rejected: [0, 1] }),
    make({ n: 64, rejected: [0, 33] }),
    // More sequences than a simdgroup has lanes.
    make({ N: 70, H: 1, K: 8, V: 5 }),
  ],
  mutants: {
    "rejected ignored": reference((shape, log, rejected, options) =>
      gatedDeltaRollbackReference(
        shape,
        log,
        rejected.map(() => 0),
        options,
      ),
    ),
    "rejected counts what stays": reference((shape, log, rejected, options) =>
      gatedDeltaRollbackReference(
        shape,
        log,
        rejected.map((m) => shape.n - m),
        options,
      ),
    ),
    "a token too many": reference((shape, log, rejected, options) =>
      gatedDeltaRollbackReference(
        shape,
        log,
        rejected.map((m) => Math.min(shape.n, m + 1)),
        options,
      ),
    ),
    "the oldest taken back": reference((shape, log, rejected, options) => {
      const { N, n } = shape;
      const kept = (data: Float64Array) => {
        const entry = data.length / (N * n);
        return data.map((_, i) => {
          const s = Math.floor(i / (n * entry));
          return data[Math.min(i + (rejected[s] as number) * entry, (s + 1) * n * entry - 1)] as number;
        });
      };
      const { logState, logKeys, logDeltas, logGates } = log;
      const shifted = { logState, logKeys: kept(logKeys), logDeltas: kept(logDeltas), logGates: kept(logGates) };
      return gatedDeltaRollbackReference(shape, shifted, rejected, options);
    }),
    "the first sequence's count for all": reference((shape, log, rejected, options) =>
      gatedDeltaRollbackReference(
        shape,
        log,
        rejected.map(() => rejected[0] as number),
        options,
      ),
    ),
    "newest first": reference((shape, log, rejected, options) =>
      gatedDeltaRollbackReference(
        shape,
        {
          logState: log.logState,
          logKeys: reversed(shape, log.logKeys),
          logDeltas: reversed(shape, log.logDeltas),
          logGates: reversed(shape, log.logGates),
        },
        rejected,
        options,
      ),
    ),
    "gates always ln": changed(({ gate: _, ...rest }) => rest),
    "head map always block": changed(({ gqa: _, ...rest }) => rest),
    "states always V, K": changed(({ stateLayout: _, ...rest }) => rest),
    "the first channel's gate for all": reference((shape, log, rejected, options) => {
      const each = log.logGates.length / (shape.N * shape.n * shape.H);
      const logGates = log.logGates.map((_, i) => log.logGates[i - (i % each)] as number);
      return gatedDeltaRollbackReference(shape, { ...log, logGates }, rejected, options);
    }),
    "the state not decayed": reference((shape, log, rejected, { gate, ...rest }) =>
      gatedDeltaRollbackReference(shape, { ...log, logGates: log.logGates.map(() => 0) }, rejected, rest),
    ),
  },
};
