import { alternate, type Limits, rateProbe, type Timed, timedCase, timedPeer } from "@mlxts/bench";
import { DEVICE_KINDS, Device, type DeviceKind } from "@mlxts/core";
import type { Bench, BenchCase, Peer, PeerProcess } from "@mlxts/core/testing";
import { type BaseCheckout, baseCheckout } from "./bench_base.ts";
import { callRows } from "./bench_calls.ts";
import { boundOf, limitsFor } from "./bench_limits.ts";
import { REPORT_OPTIONS, reportHead, reportWriter } from "./bench_output.ts";
import type { BenchRow } from "./bench_report.ts";
import { cpuDemand, gpuDemand, gpuTarget, type OpTarget, targeted } from "./bench_targets.ts";
import { command, optionalArgument } from "./contract.ts";
import { endSoonAfter } from "./interrupt.ts";
import { publicOps, unknownOp } from "./op_list.ts";
import { choice, counts, flag, integer, Reported, text, UsageError } from "./options.ts";
import { progressBar } from "./progress.ts";
import { runCases } from "./verify.ts";

/** The benchmarks of ops, all or the named ones, by package. */
async function benchesOf(
  names: readonly string[] | undefined,
  only: string | undefined,
): Promise<Map<string, Bench[]>> {
  const known = publicOps();
  const packages = [...new Set([...known.values()].map((op) => op.package))];
  const short = packages.map((name) => name.replace("@mlxts/", ""));
  if (only !== undefined && !short.includes(only))
    throw new UsageError("bench op", "--package", `be one of ${short.join(", ")}`, only);
  const wrong = names?.find((name) => !known.has(name));
  if (wrong !== undefined) throw unknownOp("bench op", wrong);
  const found = new Map<string, Bench[]>();
  for (const name of packages.filter((each) => only === undefined || each === `@mlxts/${only}`)) {
    const { benches } = (await import(`${name}/bench`)) as { benches: readonly Bench[] };
    const chosen = benches.filter(({ op }) => !names || names.includes(op));
    if (chosen.length > 0) found.set(name, chosen);
  }
  return found;
}

/** How many conformance cases of each op fail on a device. */
export async function failuresOf(
  device: DeviceKind,
  ops: readonly string[],
  modules: readonly string[],
  signal: AbortSignal,
): Promise<Map<string, number>> {
  const bar = progressBar();
  const onProgress = (done: number, cases: readonly { op: string }[]) =>
    bar.show(done, cases.length, `cases of ${cases[done]?.op ?? "all ops"}`);
  const session = await runCases({ device, modules, ops }, { signal, onProgress }).finally(bar.stop);
  const failures = new Map(ops.map((op) => [op, 0]));
  for (const [i, { op }] of session.cases.entries())
    if (!session.outcomes[i]?.pass) failures.set(op, (failures.get(op) ?? 0) + 1);
  return failures;
}

interface Measured {
  op: string;
  testCase: BenchCase;
  target?: OpTarget | undefined;
}

interface Setting {
  kind: DeviceKind;
  threads: number;
  samples: number;
  peers: boolean;
  python: string | undefined;
  /** Of a CPU; those of GPUs are not measured. */
  limits: Limits | undefined;
  base: BaseCheckout | undefined;
}

const peersOn = (kind: DeviceKind, { peers = [], gpuPeers = [] }: BenchCase): readonly Peer[] =>
  kind === "cpu" ? peers : gpuPeers;

/** Ours, the base's and the peers' times of one case, and the rate that limits it, measured in turn. */
async function measureRow(
  { op, testCase, target }: Measured,
  { kind, threads, samples, peers, python, limits, base }: Setting,
  signal: AbortSignal,
): Promise<BenchRow> {
  using device = Device.open(kind, { threads });
  const ours = await timedCase(testCase, device);
  const before = await base?.timed(op, testCase.name, kind, threads);
  const others: { name: string; time: PeerProcess }[] = [];
  for (const peer of peers ? peersOn(kind, testCase) : []) {
    const time = await timedPeer(peer, threads, python === undefined ? {} : { python });
    if (time) others.push({ name: peer.name, time });
  }
  const bound = limits && boundOf(testCase, limits);
  using probe = bound ? rateProbe(device, bound.rate) : null;
  const timed = [ours, ...(before ? [before] : []), ...others.map(({ time }) => time), ...(probe ? [probe] : [])];
  const spreads = await alternate(timed, samples, signal).finally(() => {
    before?.dispose();
    for (const { time } of others) time.dispose();
  });
  const spread = (of: Timed) => spreads[timed.indexOf(of)] as (typeof spreads)[number];
  const [own, basic] = [spread(ours), before && spread(before)];
  const limit =
    bound && probe
      ? { value: (bound.value * (limits[bound.rate] as number)) / spread(probe).median, of: bound.of }
      : null;
  const measured = others.map(({ name, time }) => ({ name, ...spread(time) }));
  const demand =
    kind === "cpu"
      ? limit && target && cpuDemand(target, limit, threads)
      : gpuDemand(gpuTarget(op, testCase), testCase, measured);
  return {
    name: op,
    case: testCase.name,
    threads,
    unit: "µs",
    ours: own,
    peers: measured,
    limit,
    work: { bytes: testCase.bytes, operations: testCase.flops },
    target: demand ? { ...demand, met: own.median <= demand.value } : null,
    base: basic && base ? { revision: base.revision, spread: basic, ratio: own.median / basic.median } : null,
    note: (kind === "cpu" ? target : gpuTarget(op, testCase))?.about ?? null,
  };
}

/** The modules with the conformance cases of these ops. */
function suitesOf(ops: readonly string[]): string[] {
  const known = publicOps();
  return [...new Set(ops.map((op) => `${known.get(op)?.package}/testing`))];
}

/** The row of a case of an op that is wrong: without a time. */
export const refusedRow = (op: string, testCase: BenchCase, threads: number, failures: number): BenchRow => ({
  name: op,
  case: testCase.name,
  threads,
  unit: "µs",
  ours: null,
  peers: [],
  limit: null,
  work: null,
  target: null,
  base: null,
  note: `not measured: ${failures} conformance case${failures > 1 ? "s fail" : " fails"}; see mlxts verify --op ${op}`,
});

export const benchOp = command({
  name: "bench op",
  summary: "Measure ops beside other libraries, and on a CPU beside what it can do.",
  arguments: { ops: optionalArgument("names of ops, separated by commas; all when there are none") },
  options: {
    device: choice("<kind>", "where to measure; on a GPU its own clock measures", DEVICE_KINDS, "cpu"),
    package: text("<name>", "only ops of this package, as quant4"),
    case: text("<text>", "only cases with this text in their name"),
    targets: flag("only cases that have a target, and the cost of calls"),
    threads: counts("numbers of threads", [1, 2]),
    samples: integer("<count>", "times that each case is measured", { min: 1, max: 1000, default: 9 }),
    peers: choice("<which>", "other libraries, measured in turn with ours", ["installed", "none"], "installed"),
    python: text("<program>", "a Python for the peers that need one; python3 when it is not given"),
    base: text("<revision>", "measure this revision too, or the checkout in this folder; in a Git checkout of mlxts"),
    unverified: flag("do not run the ops' conformance cases first"),
    ...REPORT_OPTIONS,
  },
  notes: [
    "An op whose conformance cases fail is not measured. Peers, where they are installed: onnxruntime-node, and",
    "OpenVINO for Python; on GPUs MLX for Python, and on NVIDIA's torch and flash-linear-attention for Python.",
  ],
  async run(
    { ops, device, package: only, case: part, targets, threads, samples, peers, python, base, unverified, json, html },
    signal,
  ) {
    endSoonAfter(signal);
    const write = reportWriter("bench op", { json, html });
    const onCpu = device === "cpu";
    const benches = await benchesOf(
      ops?.split(",").map((name) => name.trim()),
      only,
    );
    const cases = [...benches.values()].flat().flatMap(({ op, cases }) =>
      cases
        .filter((testCase) => testCase.name.includes(part ?? "") && (!onCpu || !testCase.gpuOnly))
        .filter((testCase) => !targets || (onCpu ? targeted : gpuTarget)(op, testCase))
        .map((testCase): Measured => ({ op, testCase, ...targeted(op, testCase) })),
    );
    if (cases.length === 0)
      throw new UsageError(
        "bench op",
        "--package, --case, --targets",
        "leave at least one case",
        [only, part, targets && "targets"].filter(Boolean).join(", ") || "none",
      );
    const checkout = base === undefined ? undefined : await baseCheckout(base, signal);
    const chosen = [...new Set(cases.map(({ op }) => op))];
    const bar = progressBar();
    const rows: BenchRow[] = [];
    try {
      const failures = unverified
        ? new Map<string, number>()
        : await failuresOf(device, chosen, suitesOf(chosen), signal);
      const counts = onCpu ? threads : [1];
      const limits = onCpu ? await limitsFor(counts) : [];
      const total = cases.length * counts.length;
      for (const { op, testCase, target } of cases)
        for (const [i, count] of counts.entries()) {
          bar.show(rows.length, total, `${op} ${testCase.name}`);
          const failed = failures.get(op) ?? 0;
          const withPeers = peers === "installed";
          const setting = { kind: device, threads: count, samples, peers: withPeers, python, base: checkout };
          rows.push(
            failed > 0
              ? refusedRow(op, testCase, count, failed)
              : await measureRow({ op, testCase, target }, { ...setting, limits: limits[i] }, signal),
          );
        }
      if (targets && onCpu) for (const count of counts) rows.push(...(await callRows(count, samples)));
      bar.stop();
      write({
        ...reportHead("mlxts bench op", device),
        limits,
        verified: unverified ? null : [...failures.keys()],
        rows,
      });
    } finally {
      bar.stop();
      checkout?.remove();
    }
    if (rows.some(({ ours }) => ours === null)) throw new Reported();
  },
});
