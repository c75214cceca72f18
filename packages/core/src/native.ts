// The native addon: its interface, and a loader that explains its failure.
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { binaryMissing, binaryRefused, prebuilt } from "./binaries.ts";
import { environment } from "./env.ts";
import { type ErrorCode, MlxtsError } from "./errors.ts";

declare const handleOf: unique symbol;
type Handle<Name> = { readonly [handleOf]: Name };
export type NativeDevice = Handle<"device">;
export type NativeMemory = Handle<"memory">;
export type NativeLibrary = Handle<"library">;
export type NativeRecording = Handle<"recording">;
export type NativeLoad = Handle<"load">;

export interface NativeOutcome {
  id: number;
  milliseconds: number;
  code?: ErrorCode;
  cause?: string;
  message?: string;
  tag?: number;
  /** Code and words of a data error. */
  fault?: [code: number, a: number, b: number, c: number];
  microseconds?: Float64Array;
}

/** What a device can take; ops ask these, never the kind's name. */
export interface DeviceLimits {
  maxThreadsPerThreadgroup: number;
  maxThreadgroupBytes: number;
  maxBufferSlots: number;
  maxInlineBytes: number;
  bufferOffsetAlignment: number;
  wrapAlignment: number;
  pageBytes: number;
  threads: number;
  maxBufferBytes: number;
  maxThreadgroupsPerAxis: readonly [x: number, y: number, z: number];
}

/** What a device opens a library from: the path of a shared library, or a kernel's text in Metal or PTX. */
export type KernelFormat = "library" | "metal" | "ptx";

export interface NativeInfo {
  kind: string;
  name: string;
  level: string;
  unifiedMemory: boolean;
  kernelFormat: KernelFormat;
  limits: DeviceLimits;
}

/** Memory over an array's bytes, which the memory keeps alive. */
export interface NativeWrap {
  memory: NativeMemory;
  /** The array shows the memory of a buffer. */
  lent: boolean;
  /** JavaScript can take the bytes away from the array's ArrayBuffer. */
  detachable: boolean;
}

/** How far a load has come. */
interface NativeLoadState {
  /** Bytes that have arrived. */
  loaded: number;
  /** Nothing is left of the load; without `memory` it was stopped. */
  ended: boolean;
  memory?: NativeMemory;
}

/** The functions that packages/core/native/addon.cpp exports. */
export interface Native {
  cpuLevels(): string[];
  openDevice(
    options: { kind: string; threads: number; level: string; order: string; capture: string; driver: string },
    onEnded: () => void,
  ): NativeDevice;
  deviceInfo(device: NativeDevice): NativeInfo;
  memoryCounters(device: NativeDevice): [live: number, bytes: number, peak: number];
  resetPeakBytes(device: NativeDevice): void;
  closeDevice(device: NativeDevice): void;
  allocate(device: NativeDevice, bytes: number): NativeMemory;
  wrapMemory(device: NativeDevice, view: ArrayBufferView, readOnly: boolean): NativeWrap;
  mapFile(device: NativeDevice, path: string, bytes: number): NativeMemory;
  loadFile(device: NativeDevice, path: string, bytes: number, moved: () => void): NativeLoad;
  loadState(device: NativeDevice, load: NativeLoad): NativeLoadState;
  stopLoad(load: NativeLoad): void;
  memoryAddress(memory: NativeMemory): number;
  readMemory(memory: NativeMemory, offset: number, into: ArrayBufferView): void;
  writeMemory(memory: NativeMemory, offset: number, data: ArrayBufferView): void;
  borrowMemory(memory: NativeMemory): ArrayBuffer;
  detach(borrowed: ArrayBuffer): void;
  freeBytes(device: NativeDevice): number | undefined;
  explainTruncatedFiles(): void;
  releaseMemory(memory: NativeMemory): void;
  openLibrary(device: NativeDevice, pathOrSource: string, name: string): NativeLibrary;
  contract(library: NativeLibrary, kernel: string): number;
  pipeline(device: NativeDevice, library: NativeLibrary, symbol: string): number;
  pipelineThreads(device: NativeDevice, pipeline: number): number;
  record(device: NativeDevice, words: Uint32Array, count: number, memories: NativeMemory[]): NativeRecording;
  releaseRecording(recording: NativeRecording): void;
  run(device: NativeDevice, words: Uint32Array, count: number, memories: NativeMemory[], profile: boolean): number;
  submit(device: NativeDevice, recording: NativeRecording, profile: boolean): number;
  takeEnded(device: NativeDevice): NativeOutcome[];
  waitFor(device: NativeDevice, id: number): void;
}

/** The addon with the simulated Metal device in it. */
function simulator(): string {
  const { metalSimulator } = environment();
  return typeof metalSimulator === "string" ? metalSimulator : prebuilt(import.meta.url, "core-metal-sim.node");
}

/** Why the Metal simulator that was asked for cannot run. */
export function simulatorMissing(): string | undefined {
  const path = simulator();
  return existsSync(path) ? undefined : `the simulator is not built: looked for ${path} — run \`npm run metal-sim\``;
}

let loaded: Native | undefined;

export function native(): Native {
  if (loaded) return loaded;
  const simulated = environment().metalSimulator && simulatorMissing() === undefined;
  const path = simulated ? simulator() : prebuilt(import.meta.url, "core.node");
  if (!existsSync(path)) throw binaryMissing("@mlxts/core has no native addon", import.meta.url, ["core.node"]);
  try {
    loaded = createRequire(import.meta.url)(path) as Native;
  } catch (error) {
    throw binaryRefused("@mlxts/core cannot load its addon", path, error as Error);
  }
  return loaded;
}

/** The code of an error thrown by the addon. */
export function nativeFailure(error: unknown): { code: ErrorCode; message: string; detail: string } | undefined {
  if (!(error instanceof Error) || !("code" in error) || !("detail" in error)) return undefined;
  return { code: error.code as ErrorCode, message: error.message, detail: String(error.detail) };
}

/** An error of the addon as programs get it: the device has failed in a call that is no submission. */
export function deviceFailure(op: string, error: unknown): unknown {
  const failure = nativeFailure(error);
  const made = (details: Record<string, unknown>) =>
    new MlxtsError((failure as { code: ErrorCode }).code, `${op}: ${failure?.message}`, details, error);
  if (failure?.code === "CommandBuffer") return made({ cause: failure.detail || "unknown", ops: [op] });
  if (failure?.code === "BufferAllocation") return made({ bytes: Number(failure.detail) });
  return error;
}
