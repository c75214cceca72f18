import { setTimeout as wait } from "node:timers/promises";
import type { Device } from "@mlxts/core";
import type { BenchCase, Peer, PeerProcess } from "@mlxts/core/testing";
import { type Spread, spreadOf } from "./spread.ts";

/** Something whose time is taken again and again: `run` gives µs of one call. */
export interface Timed {
  run(): Promise<number>;
}

/** Milliseconds that one recording takes at least, so that the clock and the hand-over do not matter. */
const RECORDING_MS = 4;

/** A case of ours on a device: so many calls in one recording, which is replayed. */
export async function timedCase(testCase: BenchCase, device: Device): Promise<Timed> {
  const { encode } = testCase.setup(device);
  const record = (calls: number) => {
    const arena = device.arena(1 << 24, { grow: true });
    const encoder = device.encoder({ arena });
    for (let i = 0; i < calls; i++) {
      const mark = arena.mark();
      encode(encoder);
      arena.rewind(mark);
      // Calls follow one another, as the ops of a model do.
      encoder.barrier();
    }
    return encoder.finish();
  };
  const once = record(1);
  await once.replay();
  const { ms } = await once.replay();
  const calls = Math.max(1, Math.min(2000, Math.ceil(RECORDING_MS / Math.max(ms, 1e-3))));
  const recording = record(calls);
  await recording.replay();
  return { run: async () => ((await recording.replay()).ms * 1000) / calls };
}

/** Milliseconds after a peer's turn: its threads may wait for its next call awake, as onnxruntime's do. */
const REST_MS = 50;

/** The same of a peer; undefined when it is not installed. */
export async function timedPeer(
  peer: Peer,
  threads: number,
  programs?: { python?: string },
): Promise<PeerProcess | undefined> {
  const call = await peer.setup(threads, programs);
  if (typeof call !== "function") return call;
  for (let i = 0; i < 3; i++) await call();
  return {
    async run() {
      const start = performance.now();
      let calls = 0;
      for (; calls === 0 || performance.now() - start < RECORDING_MS; calls++) await call();
      const us = ((performance.now() - start) * 1000) / calls / (peer.calls ?? 1);
      await wait(REST_MS);
      return us;
    },
    dispose() {},
  };
}

/** Spreads of all of them, measured in turn, so that what disturbs one disturbs all. */
export async function alternate(all: readonly Timed[], samples: number, signal?: AbortSignal): Promise<Spread[]> {
  const times = all.map((): number[] => []);
  for (let i = 0; i < samples; i++) {
    const order = all.map((_, at) => at);
    for (const at of i % 2 ? order.reverse() : order) {
      signal?.throwIfAborted();
      times[at]?.push(await (all[at] as Timed).run());
    }
  }
  return times.map(spreadOf);
}
