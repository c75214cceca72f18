import type { Device } from "../device.ts";
import type { CommandEncoder } from "../encoder.ts";

/** One measured setting of an op. `encode` records one call; the runner replays it. */
export interface BenchCase {
  name: string;
  /** Bytes that must move and floating-point operations of one call. */
  bytes: number;
  flops: number;
  setup(device: Device): { encode(encoder: CommandEncoder): void };
  /** A peer for the same work in the same process, if it is installed: one call, blocking or not. */
  peer?: { name: string; setup(threads: number): Promise<(() => unknown) | undefined> };
}

export interface Bench {
  op: string;
  cases: readonly BenchCase[];
}

export function defineBench(bench: Bench): Bench {
  return bench;
}
