import type { CommandEncoder, Device } from "../api.ts";

/** One measured setting of an op. `encode` records one call; the runner replays it. */
export interface BenchCase {
  name: string;
  /** Bytes that must move and floating-point operations of one call. */
  bytes: number;
  flops: number;
  setup(device: Device): { encode(encoder: CommandEncoder): void };
  peer?: Peer;
}

/** The same work by another library: one call, blocking or not; undefined when it is not installed. */
export interface Peer {
  name: string;
  setup(threads: number): Promise<(() => unknown) | undefined>;
}

export interface Bench {
  op: string;
  cases: readonly BenchCase[];
}

export function defineBench(bench: Bench): Bench {
  return bench;
}
