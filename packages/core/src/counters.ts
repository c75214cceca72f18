/** Monotonic counts of what a device has done; live counts of what it holds. */
export interface DeviceCounters {
  dispatches: number;
  manualBarriers: number;
  automaticBarriers: number;
  /** Calls of ops that became one with another. */
  fusedPairs: number;
  /** Dispatches that were moved before earlier ones. */
  movedNodes: number;
  submissions: number;
  waits: number;
  pipelines: number;
  /** Tensors of a checkpoint that could not be bound where they lie. */
  copiedTensors: number;
  liveBuffers: number;
  liveBytes: number;
  peakBytes: number;
}

/** The counts that are kept in JavaScript; native code counts memory. */
export type Tally = Omit<DeviceCounters, "liveBuffers" | "liveBytes" | "peakBytes">;

export const zeroTally = (): Tally => ({
  dispatches: 0,
  manualBarriers: 0,
  automaticBarriers: 0,
  fusedPairs: 0,
  movedNodes: 0,
  submissions: 0,
  waits: 0,
  pipelines: 0,
  copiedTensors: 0,
});
