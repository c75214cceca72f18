import type { CommandEncoder, Device } from "../api.ts";

/** One measured setting of an op. `encode` records one call; the runner replays it. */
export interface BenchCase {
  name: string;
  /** Bytes that must move and operations of one call, multiplications and additions counted apart. */
  bytes: number;
  flops: number;
  /** Where the bytes come from. Default: memory for more than 16 MiB, the shared cache for more than 2 MiB a thread. */
  from?: "memory" | "shared cache" | "core cache";
  /**
   * The numbers that are multiplied. Those with codes, integers of a byte, are as well made with three bytes for each f32,
   * and with two for each bf16. Default f32.
   */
  products?: "f32" | "bf16" | "int8" | "f32 with codes" | "bf16 with codes";
  setup(device: Device): { encode(encoder: CommandEncoder): void };
  peers?: readonly Peer[];
  /** Other libraries on a GPU; those of NVIDIA's GPUs are absent elsewhere. */
  gpuPeers?: readonly Peer[];
  /** Work that takes a CPU so long that it is measured on GPUs only. */
  gpuOnly?: boolean;
}

/** A library in another process, which takes its time by itself: `run` gives µs of one call. */
export interface PeerProcess {
  run(): Promise<number>;
  dispose(): void;
}

/** The same work by another library: one call, blocking or not; undefined when it is not installed. */
export interface Peer {
  name: string;
  /** Calls of the case that one call of the peer's function stands for. Default 1. */
  calls?: number;
  setup(threads: number, programs?: { python?: string }): Promise<(() => unknown) | PeerProcess | undefined>;
}

export interface Bench {
  op: string;
  cases: readonly BenchCase[];
}

export function defineBench(bench: Bench): Bench {
  return bench;
}
