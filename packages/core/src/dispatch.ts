// The arguments of a dispatch, read once and checked: what the encoder records are copies that nobody can change.
import type { AnyKernel, Node } from "./command_writer.ts";
import { wrongKind, wrongValue } from "./errors.ts";
import { checkKernel, type Launch, type Machine } from "./kernel.ts";
import type { DeviceLimits } from "./native.ts";
import { checkOptionNames, namesOf } from "./options.ts";
import { Tensor } from "./tensor.ts";

const ARGUMENTS = { variant: true, buffers: true, params: true, sizes: true, op: true };

type Axes = readonly [x: number, y: number, z: number];

const product = ([x, y, z]: Axes): number => x * y * z;

/** Threads of a threadgroup. */
export const threadsOf = (launch: Launch): number => product(launch.threadsPerThreadgroup);

/**
 * Reads the arguments of a dispatch, each value once, and checks what can be checked without looking at the encoder.
 * @throws TypeError or RangeError of the op
 */
export function readDispatch(kernel: AnyKernel, args: Record<string, unknown>, device: Machine): Node {
  checkKernel("encoder.dispatch", kernel);
  checkOptionNames<object>(kernel.name, args, ARGUMENTS as never, "arguments");
  const { variant, buffers, params, sizes, op = kernel.name } = args;
  if (typeof op !== "string") throw wrongKind(kernel.name, "op", "be a string", op);
  if (!kernel.variants.includes(variant as string))
    throw wrongValue(op, "variant", `be one of ${kernel.variants.join(", ")}`, variant);
  const tensors = readBuffers(op, kernel, buffers);
  const numbers = readParams(op, kernel, params);
  namesOf(op, "sizes", sizes);
  const launch = readLaunch(op, kernel.launch(sizes as never, device), device.limits);
  return { kernel, op, variant: variant as string, buffers: tensors, params: numbers, launch };
}

/** Refuses names that the kernel does not have. */
function checkNames(op: string, argument: string, given: unknown, names: readonly string[]): void {
  for (const key of namesOf(op, argument, given))
    if (!names.includes(key))
      throw wrongKind(op, key, `be one of ${names.join(", ") || `(no ${argument})`}`, `an unknown name in ${argument}`);
}

function readBuffers(op: string, kernel: AnyKernel, given: unknown): Node["buffers"] {
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

function readParams(op: string, kernel: AnyKernel, given: unknown): Node["params"] {
  checkNames(op, "params", given, kernel.paramNames);
  const numbers: Record<string, number> = {};
  for (const name of kernel.paramNames) {
    const value = (given as Record<string, unknown>)[name];
    if (typeof value !== "number") throw wrongKind(op, name, "be a number", value);
    const scalar = kernel.params[name];
    const [min, max] = scalar === "u32" ? [0, 0xffffffff] : [-0x80000000, 0x7fffffff];
    if (scalar !== "f32" && !(Number.isInteger(value) && value >= min && value <= max))
      throw wrongValue(op, name, `be a ${scalar}`, value);
    numbers[name] = value;
  }
  // Texts of faults are made from them later.
  return Object.freeze(numbers);
}

/** A copy of three numbers. */
function readAxes(op: string, argument: string, axes: unknown): Axes {
  if (!Array.isArray(axes) || axes.length !== 3) throw wrongKind(op, argument, "be an array of three numbers", axes);
  const copy = [axes[0], axes[1], axes[2]] as const;
  for (const axis of copy)
    if (typeof axis !== "number") throw wrongKind(op, argument, "be an array of three numbers", axes);
  return copy;
}

function readLaunch(op: string, given: Launch, limits: DeviceLimits): Launch {
  if (given === null || typeof given !== "object") throw wrongKind(op, "launch", "return an object", given);
  const threadgroups = readAxes(op, "threadgroups", given.threadgroups);
  const threadsPerThreadgroup = readAxes(op, "threadsPerThreadgroup", given.threadsPerThreadgroup);
  const { threadgroupBytes = 0 } = given;
  for (const axis of threadgroups)
    if (!Number.isInteger(axis) || axis < 1 || axis > limits.maxThreadgroupsPerAxis)
      throw wrongValue(op, "threadgroups", `be from 1 to ${limits.maxThreadgroupsPerAxis} on each axis`, threadgroups);
  if (!Number.isSafeInteger(product(threadgroups)))
    throw wrongValue(op, "threadgroups", "be fewer than 2^53 in all", threadgroups);
  const threads = product(threadsPerThreadgroup);
  const whole = threadsPerThreadgroup.every((axis) => Number.isInteger(axis) && axis >= 1);
  if (!whole || threads > limits.maxThreadsPerThreadgroup)
    throw wrongValue(
      op,
      "threadsPerThreadgroup",
      `have a product from 1 to ${limits.maxThreadsPerThreadgroup}`,
      threadsPerThreadgroup,
    );
  if (!Number.isInteger(threadgroupBytes) || threadgroupBytes < 0 || threadgroupBytes > limits.maxThreadgroupBytes)
    throw wrongValue(op, "threadgroupBytes", `be an integer from 0 to ${limits.maxThreadgroupBytes}`, threadgroupBytes);
  return { threadgroups, threadsPerThreadgroup, threadgroupBytes };
}
