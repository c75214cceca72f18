// The arguments of a dispatch, read once and checked: what the encoder records are copies that nobody can change.
import { F32_RANGE, wrongKind, wrongValue } from "./errors.ts";
import {
  type Access,
  checkKernel,
  type Kernel,
  type LaunchDevice,
  runLaunchRule,
  type Scalar,
  type World,
  worldOf,
} from "./kernel.ts";
import type { DeviceLimits } from "./native.ts";
import { checkOptionNames, namesOf } from "./options.ts";
import { GUARD_BYTES, layScratchOut, overrunText, SCRATCH_OVERRUN, type ScratchLayout } from "./scratch.ts";
import { Tensor } from "./tensor.ts";

export type AnyKernel = Kernel<Record<string, Access>, Record<string, Scalar>, never>;

type FaultText = (code: number, words: [number, number, number]) => string | undefined;

/** One dispatch: copies of the arguments that were checked. */
export interface Dispatch {
  readonly kernel: AnyKernel;
  /** The op that dispatches. */
  readonly op: string;
  readonly variant: string;
  /** What errors, traces and profiles call it. */
  readonly label: string;
  /** The text of what the kernel has found wrong in its data. */
  readonly fault: FaultText;
  readonly buffers: Readonly<Record<string, Tensor | undefined>>;
  /** Values of `params` and of `launchParams`. */
  readonly params: Readonly<Record<string, number>>;
  readonly launch: {
    readonly world: World;
    readonly threadgroups: readonly [x: number, y: number, z: number];
    readonly threadsPerThreadgroup: readonly [x: number, y: number, z: number];
    readonly scratch: ScratchLayout;
  };
}

const ARGUMENTS = { variant: true, buffers: true, params: true, sizes: true, op: true, names: true };

type Axes = readonly [x: number, y: number, z: number];

const product = ([x, y, z]: Axes): number => x * y * z;

/** Threads of a threadgroup. */
export const threadsOf = (launch: Dispatch["launch"]): number => product(launch.threadsPerThreadgroup);

/**
 * Reads the arguments of a dispatch, each value once, and checks what can be checked without looking at the encoder.
 * @throws TypeError or RangeError of the op
 */
export function readDispatch(
  kernel: AnyKernel,
  args: Record<string, unknown>,
  device: LaunchDevice & { readonly validate: boolean },
): Dispatch {
  checkKernel("encoder.dispatch", kernel);
  checkOptionNames<object>(kernel.name, args, ARGUMENTS as never, "arguments");
  const { variant, buffers, params, sizes, op = kernel.name, names = {} } = args;
  if (typeof op !== "string") throw wrongKind(kernel.name, "op", "be a string", op);
  if (!kernel.variants.includes(variant as string))
    throw wrongValue(op, "variant", `be one of ${kernel.variants.join(", ")}`, variant);
  const tensors = readBuffers(op, kernel, buffers);
  const called = readNames(op, kernel, names);
  const given = readParams(op, "params", kernel.params, params);
  namesOf(op, "sizes", sizes);
  const { launch, decided } = readLaunch(op, kernel, sizes, device);
  // Texts of faults are made from the parameters later.
  const numbers = Object.freeze({ ...given, ...decided });
  const fault: FaultText = (code, words) =>
    code === SCRATCH_OVERRUN
      ? overrunText(kernel.scratch.cpu, words[0])
      : kernel.faultTexts[code - 1]?.(words, numbers).replace(
          /`(\w+)`/g,
          (_, name) => `\`${called.get(name) ?? name}\``,
        );
  const label = `${op}/${kernel.name}_${variant}`;
  return { kernel, op, variant: variant as string, label, fault, buffers: tensors, params: numbers, launch };
}

/** Refuses names that the kernel does not have. */
function checkNames(op: string, argument: string, given: unknown, names: readonly string[]): void {
  for (const key of namesOf(op, argument, given))
    if (!names.includes(key))
      throw wrongKind(op, key, `be one of ${names.join(", ") || `(no ${argument})`}`, `an unknown name in ${argument}`);
}

/** What the op calls buffers of the kernel. */
function readNames(op: string, kernel: AnyKernel, given: unknown): ReadonlyMap<string, string> {
  checkNames(op, "names", given, kernel.bufferNames);
  const entries = Object.entries(given as Record<string, unknown>);
  for (const [name, value] of entries) if (typeof value !== "string") throw wrongKind(op, name, "be a string", value);
  return new Map(entries as [string, string][]);
}

function readBuffers(op: string, kernel: AnyKernel, given: unknown): Dispatch["buffers"] {
  checkNames(op, "buffers", given, kernel.bufferNames);
  const tensors: Record<string, Tensor | undefined> = {};
  for (const name of kernel.bufferNames) {
    const tensor = (given as Record<string, unknown>)[name];
    if (!(tensor instanceof Tensor) && !(tensor === undefined && kernel.buffers[name]?.endsWith("?")))
      throw wrongKind(op, name, "be a Tensor", tensor);
    tensors[name] = tensor as Tensor | undefined;
  }
  return tensors;
}

function readParams(
  op: string,
  argument: string,
  declared: Readonly<Record<string, Scalar>>,
  given: unknown,
): Record<string, number> {
  const names = Object.keys(declared);
  checkNames(op, argument, given, names);
  const numbers: Record<string, number> = {};
  for (const name of names) {
    const value = (given as Record<string, unknown>)[name];
    if (typeof value !== "number") throw wrongKind(op, name, "be a number", value);
    const scalar = declared[name];
    const [min, max] = scalar === "u32" ? [0, 0xffffffff] : [-0x80000000, 0x7fffffff];
    if (scalar !== "f32" && !(Number.isInteger(value) && value >= min && value <= max))
      throw wrongValue(op, name, `be a ${scalar}`, value);
    if (scalar === "f32" && Number.isFinite(value) && !Number.isFinite(Math.fround(value)))
      throw wrongValue(op, name, "be finite as f32", value, F32_RANGE);
    numbers[name] = value;
  }
  return numbers;
}

/** A copy of three numbers. */
function readAxes(op: string, argument: string, axes: unknown): Axes {
  if (!Array.isArray(axes) || axes.length !== 3) throw wrongKind(op, argument, "be an array of three numbers", axes);
  const copy = [axes[0], axes[1], axes[2]] as const;
  for (const axis of copy)
    if (typeof axis !== "number") throw wrongKind(op, argument, "be an array of three numbers", axes);
  return copy;
}

function checkThreadgroups(op: string, threadgroups: Axes, { maxThreadgroupsPerAxis }: DeviceLimits): void {
  for (const [i, axis] of threadgroups.entries()) {
    const most = maxThreadgroupsPerAxis[i] as number;
    if (!Number.isInteger(axis) || axis < 1 || axis > most)
      throw wrongValue(op, "threadgroups", `be from 1 to ${most} on axis ${"xyz"[i]}`, threadgroups);
  }
  if (!Number.isSafeInteger(product(threadgroups)))
    throw wrongValue(op, "threadgroups", "be fewer than 2^53 in all", threadgroups);
}

function checkThreads(op: string, threads: Axes, most: number): void {
  const whole = threads.every((axis) => Number.isInteger(axis) && axis >= 1);
  if (!whole || product(threads) > most)
    throw wrongValue(op, "threadsPerThreadgroup", `have a product from 1 to ${most}`, threads);
}

const ONE_THREAD: Axes = [1, 1, 1];
const NO_PARAMS = Object.freeze({});
const LAUNCH = { threadgroups: true, threadsPerThreadgroup: true, scratch: true, params: true };
/** A vector of the widest instruction set, and a cache line; the rule for threadgroup memory on GPUs. */
const SCRATCH_ALIGNMENT = { cpu: 64, gpu: 16 } as const;

/** What a kernel's launch rule gives for these sizes, checked; `decided` are the values of `launchParams`. */
function readLaunch(
  op: string,
  kernel: AnyKernel,
  sizes: unknown,
  device: LaunchDevice & { readonly validate: boolean },
) {
  const { limits } = device;
  const { given, arrays } = runLaunchRule(op, kernel, sizes, device);
  checkOptionNames<object>(op, given as object, LAUNCH as never, "launch");
  const {
    threadgroups,
    threadsPerThreadgroup = ONE_THREAD,
    scratch: shapes,
    params = NO_PARAMS,
  } = given as Record<string, unknown>;
  const world = worldOf(device);
  const launch = {
    world,
    threadgroups: readAxes(op, "threadgroups", threadgroups),
    threadsPerThreadgroup: readAxes(op, "threadsPerThreadgroup", threadsPerThreadgroup),
    scratch: layScratchOut(op, arrays, shapes, {
      alignment: SCRATCH_ALIGNMENT[world],
      guarded: device.validate && !device.gpu,
    }),
  };
  checkThreadgroups(op, launch.threadgroups, limits);
  const mostThreads = (world === "gpu" ? kernel.mostThreads : undefined) ?? limits.maxThreadsPerThreadgroup;
  checkThreads(op, launch.threadsPerThreadgroup, Math.min(mostThreads, limits.maxThreadsPerThreadgroup));
  const bytes = launch.scratch.bytes - GUARD_BYTES * launch.scratch.guards.length;
  if (bytes > limits.maxThreadgroupBytes)
    throw wrongValue(op, "scratch", `take at most ${limits.maxThreadgroupBytes} bytes`, bytes);
  return { launch, decided: readParams(op, "launch.params", kernel.launchParams[world], params) };
}

/** Whether the scratch of a dispatch with these sizes fits a device's threadgroup memory. */
export function scratchFits<S>(
  kernel: { readonly launch: Kernel<Record<never, never>, Record<never, never>, S>["launch"] },
  sizes: S,
  device: LaunchDevice,
): boolean {
  const op = "scratchFits";
  checkKernel(op, kernel);
  const { given, arrays } = runLaunchRule(op, kernel as unknown as AnyKernel, sizes, device);
  const { scratch } = given as { scratch?: unknown };
  const alignment = SCRATCH_ALIGNMENT[worldOf(device)];
  return layScratchOut(op, arrays, scratch, { alignment, guarded: false }).bytes <= device.limits.maxThreadgroupBytes;
}
