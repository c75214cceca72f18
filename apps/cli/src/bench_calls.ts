// What calls from JavaScript take beside the work that they ask for.
import { peakReadKernel, type Spread, spreadOf } from "@mlxts/bench";
import { Device, type Recording, type Submission } from "@mlxts/core";
import type { BenchRow } from "./bench_report.ts";

const CALLS = 200;
const WARM_UP = 30;
const DISPATCHES = 1000;

/** µs of one call to replay a recording, not of its work. */
async function callTime(recording: Recording, samples: number): Promise<Spread> {
  const times: number[] = [];
  // The first rounds are slower: V8 compiles what is called often.
  for (let sample = -WARM_UP; sample < samples; sample++) {
    const pending: Submission[] = new Array(CALLS);
    const start = performance.now();
    for (let i = 0; i < CALLS; i++) pending[i] = recording.replay();
    if (sample >= 0) times.push(((performance.now() - start) * 1000) / CALLS);
    await Promise.all(pending);
  }
  return spreadOf(times);
}

/** µs of one dispatch without work in a long recording. */
async function dispatchTime(recording: Recording, samples: number): Promise<Spread> {
  const times: number[] = [];
  for (let sample = 0; sample <= samples; sample++) {
    const { ms } = await recording.replay();
    if (sample > 0) times.push((ms * 1000) / DISPATCHES);
  }
  return spreadOf(times);
}

function row(what: string, threads: number, ours: Spread, most: number): BenchRow {
  return {
    name: "call",
    case: what,
    threads,
    unit: "µs",
    ours,
    peers: [],
    limit: null,
    work: null,
    target: { value: most, text: `${most} µs`, met: ours.median <= most },
    base: null,
    note: null,
  };
}

/** A recording of dispatches that read nothing. */
function recordingOf(device: Device, dispatches: number): Recording {
  const [x, out] = [device.tensor("f32", [64]), device.tensor("f32", [2])];
  const encoder = device.encoder();
  for (let i = 0; i < dispatches; i++)
    encoder.dispatch(peakReadKernel, {
      variant: "f32",
      buffers: { x, out },
      params: { perGroup: 0, repeats: 0 },
      sizes: { groups: 1 },
    });
  return encoder.finish();
}

export async function callRows(threads: number, samples: number): Promise<BenchRow[]> {
  using device = Device.open("cpu", { threads });
  const call = await callTime(recordingOf(device, 1), samples);
  const dispatch = await dispatchTime(recordingOf(device, DISPATCHES), samples);
  return [
    row("replay a recording, without its work", threads, call, 1.5),
    row("a dispatch without work, of 1000 in order", threads, dispatch, 0.1),
  ];
}
