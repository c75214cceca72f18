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
  /** Values of `params`, then of the world's `launchParams`, in the order of the declarations. */
  readonly params: readonly number[];
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
  const { variant, buffers, params, sizes, op = kernel.name, names } = args;
  if (typeof op !== "string") throw wrongKind(kernel.name, "op", "be a string", op);
  if (!kernel.variants.includes(variant as string))
    throw wrongValue(op, "variant", `be one of ${kernel.variants.join(", ")}`, variant);
  const tensors = readBuffers(op, kernel, buffers);
  const called = names === undefined ? undefined : readNames(op, kernel, names);
  const { paramNames, launchParamNames } = kernel;
  // Arrays that grow would take room for many more.
  const numbers = new Array<number>(paramNames.length + launchParamNames[worldOf(device)].length);
  readParams(op, "params", paramNames, kernel.params, params, numbers, 0);
  namesOf(op, "sizes", sizes);
  const launch = readLaunch(op, kernel, sizes, device, numbers);
  const fault: FaultText = (code, words) =>
    code === SCRATCH_OVERRUN
      ? overrunText(kernel.scratch.cpu, words[0])
      : kernel.faultTexts[code - 1]?.(words, namedParams(kernel, launch.world, numbers)).replace(
          /`(\w+)`/g,
          (_, name) => `\`${called?.get(name) ?? name}\``,
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
  // A copy made at once takes less memory than one that grows.
  const tensors = { ...(given as Record<string, Tensor | undefined>) };
  for (let i = 0; i < kernel.bufferNames.length; i++) {
    const name = kernel.bufferNames[i] as string;
    const tensor = tensors[name];
    if (!(tensor instanceof Tensor) && !(tensor === undefined && kernel.buffers[name]?.endsWith("?")))
      throw wrongKind(op, name, "be a Tensor", tensor);
  }
  return tensors;
}

/** Copies the values of the declared parameters, in that order, to `numbers`, from place `first` on. */
function readParams(
  op: string,
  argument: string,
  names: readonly string[],
  declared: Readonly<Record<string, Scalar>>,
  given: unknown,
  numbers: number[],
  first: number,
): void {
  checkNames(op, argument, given, names);
  for (let i = 0; i < names.length; i++) {
    const name = names[i] as string;
    const value = (given as Record<string, unknown>)[name];
    if (typeof value !== "number") throw wrongKind(op, name, "be a number", value);
    const scalar = declared[name];
    if (scalar === "f32") {
      if (Number.isFinite(value) && !Number.isFinite(Math.fround(value)))
        throw wrongValue(op, name, "be finite as f32", value, F32_RANGE);
    } else {
      const [min, max] = scalar === "u32" ? [0, 0xffffffff] : [-0x80000000, 0x7fffffff];
      if (!(Number.isInteger(value) && value >= min && value <= max))
        throw wrongValue(op, name, `be a ${scalar}`, value);
    }
    numbers[first + i] = value;
  }
}

/** The values of a dispatch's parameters by name. */
export function namedParams(
  { paramNames, launchParamNames }: AnyKernel,
  world: World,
  params: Dispatch["params"],
): Record<string, number> {
  const names = [...paramNames, ...launchParamNames[world]];
  return Object.fromEntries(names.map((name, i) => [name, params[i] as number]));
}

/** A copy of three numbers. */
function readAxes(op: string, argument: string, axes: unknown): Axes {
  if (!Array.isArray(axes) || axes.length !== 3) throw wrongKind(op, argument, "be an array of three numbers", axes);
  const [x, y, z] = [axes[0], axes[1], axes[2]];
  if (typeof x !== "number" || typeof y !== "number" || typeof z !== "number")
    throw wrongKind(op, argument, "be an array of three numbers", axes);
  return [x, y, z];
}

function checkThreadgroups(op: string, threadgroups: Axes, { maxThreadgroupsPerAxis }: DeviceLimits): void {
  for (let i = 0; i < 3; i++) {
    const axis = threadgroups[i] as number;
    const most = maxThreadgroupsPerAxis[i] as number;
    if (!Number.isInteger(axis) || axis < 1 || axis > most)
      throw wrongValue(op, "threadgroups", `be from 1 to ${most} on axis ${"xyz"[i]}`, threadgroups);
  }
  if (!Number.isSafeInteger(product(threadgroups)))
    throw wrongValue(op, "threadgroups", "be fewer than 2^53 in all", threadgroups);
}

function checkThreads(op: string, threads: Axes, most: number): void {
  const [x, y, z] = threads;
  const whole = Number.isInteger(x) && Number.isInteger(y) && Number.isInteger(z) && Math.min(x, y, z) >= 1;
  if (!whole || product(threads) > most)
    throw wrongValue(op, "threadsPerThreadgroup", `have a product from 1 to ${most}`, threads);
}

const ONE_THREAD: Axes = [1, 1, 1];
const NO_PARAMS = Object.freeze({});
const LAUNCH = { threadgroups: true, threadsPerThreadgroup: true, scratch: true, params: true };
/** A vector of the widest instruction set, and a cache line; the rule for threadgroup memory on GPUs. */
const SCRATCH_ALIGNMENT = { cpu: 64, gpu: 16 } as const;

/** What a kernel's launch rule gives for these sizes, checked; `numbers` gets the values of `launchParams`. */
function readLaunch(
  op: string,
  kernel: AnyKernel,
  sizes: unknown,
  device: LaunchDevice & { readonly validate: boolean },
  numbers: number[],
): Dispatch["launch"] {
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
  const { paramNames, launchParamNames, launchParams } = kernel;
  readParams(op, "launch.params", launchParamNames[world], launchParams[world], params, numbers, paramNames.length);
  return launch;
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
