import type { CommandEncoder, Device } from "../api.ts";

/** One measured setting of an op. `encode` records one call; the runner replays it. */
export interface BenchCase {
  name: string;
  /** Bytes that must move and operations of one call, multiplications and additions counted apart. */
  bytes: number;
  flops: number;
  /** Where the bytes come from. Default: memory for more than 16 MiB, else the caches of the cores. */
  from?: "memory" | "shared cache" | "core cache";
  /** The products that the processor is fastest with, of those that are exact enough. Default f32. */
  products?: "f32" | "bf16" | "int8";
  setup(device: Device): { encode(encoder: CommandEncoder): void };
  peers?: readonly Peer[];
}

/** A library in another process, which takes its time by itself: `run` gives µs of one call. */
export interface PeerProcess {
  run(): Promise<number>;
  dispose(): void;
}

/** The same work by another library: one call, blocking or not; undefined when it is not installed. */
export interface Peer {
  name: string;
  setup(threads: number, programs?: { python?: string }): Promise<(() => unknown) | PeerProcess | undefined>;
}

export interface Bench {
  op: string;
  cases: readonly BenchCase[];
}

export function defineBench(bench: Bench): Bench {
  return bench;
}
