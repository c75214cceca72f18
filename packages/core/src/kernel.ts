import type { Device } from "./device.ts";
import { wrongKind, wrongValue } from "./errors.ts";
import type { LibraryDefinition } from "./library.ts";

/** How a kernel uses a buffer; a trailing `?` marks one that may be absent. */
export type Access = "read" | "write" | "readWrite" | "read?" | "write?" | "readWrite?";
/** Parameters are 4-byte scalars. */
export type Scalar = "u32" | "i32" | "f32";

/** What a launch rule may know of the device: GPUs want another decomposition than CPUs. */
export type Machine = Pick<Device, "gpu" | "limits">;

/**
 * The text of an error in the data, "`argument` must <rule>, got <value>", from the three words that the kernel leaves
 * and its parameters.
 */
export type Fault<P extends Record<string, Scalar>> = (
  words: readonly [number, number, number],
  params: { readonly [K in keyof P]: number },
) => string;

export interface Launch {
  threadgroups: readonly [x: number, y: number, z: number];
  threadsPerThreadgroup: readonly [x: number, y: number, z: number];
  /** Threadgroup memory; on the CPU, scratch private to a thread. Default 0. */
  threadgroupBytes?: number;
}

export interface KernelDeclaration<B extends Record<string, Access>, P extends Record<string, Scalar>, S> {
  library: LibraryDefinition;
  /** The symbol is `name` + "_" + variant. */
  name: string;
  /** The dtype, or dtypes joined by `_`, of each instance. */
  variants: readonly string[];
  /** In binding order. */
  buffers: B;
  params: P;
  /** Numbers that launch rule and kernel agree on, integers; macros in the header. */
  constants?: Record<string, number>;
  /** What a kernel may find wrong in its data; the header has a code for each. */
  faults?: Record<string, Fault<P>>;
  /** Pairs [output, input] that may be exactly the same view. */
  inPlace?: readonly (readonly [keyof B & string, keyof B & string])[];
  launch(sizes: S, machine: Machine): Launch;
}

/** A kernel's declaration, completed: what a dispatch needs to know. */
export interface Kernel<
  B extends Record<string, Access> = Record<string, Access>,
  P extends Record<string, Scalar> = Record<string, Scalar>,
  S = never,
> extends KernelDeclaration<B, P, S> {
  readonly bufferNames: readonly (keyof B & string)[];
  readonly paramNames: readonly (keyof P & string)[];
  /** Whether a buffer may be absent: the params then end in `present`, a bit for each buffer. */
  readonly optional: boolean;
  /** The texts of `faults`; code 1 is the first. */
  readonly faultTexts: readonly Fault<P>[];
}

const IDENTIFIER = /^[a-z][A-Za-z0-9]*$/;

/** Declares a kernel once: names, binding order with access, params and launch. The params header is generated from it. */
export function defineKernel<B extends Record<string, Access>, P extends Record<string, Scalar>, S>(
  declaration: KernelDeclaration<B, P, S>,
): Kernel<B, P, S> {
  const op = "defineKernel";
  const { name, buffers, params, variants, constants = {}, faults = {} } = declaration;
  if (!/^[a-z][a-z0-9]*(_[a-z0-9]+)*$/.test(name)) throw wrongValue(op, "name", "be in snake_case", name);
  if (variants.length === 0) throw wrongValue(op, "variants", "name at least one variant", variants);
  for (const key of [buffers, params, constants, faults].flatMap((names) => Object.keys(names)))
    if (!IDENTIFIER.test(key)) throw wrongValue(op, key, "be in camelCase", key);
  for (const [key, scalar] of Object.entries(params))
    if (!["u32", "i32", "f32"].includes(scalar)) throw wrongKind(op, key, "be u32, i32 or f32", scalar);
  for (const [key, value] of Object.entries(constants))
    if (!Number.isInteger(value) || value < 0 || value > 0x7fffffff)
      throw wrongValue(op, key, "be an integer from 0 to 2147483647", value);
  return {
    ...declaration,
    bufferNames: Object.keys(buffers),
    paramNames: Object.keys(params),
    optional: Object.values(buffers).some((access) => access.endsWith("?")),
    faultTexts: Object.values(faults),
  };
}

const C_TYPES: Record<Scalar, string> = { u32: "uint32_t", i32: "int32_t", f32: "float" };

/**
 * The text of `native/<name>.params.h`, for both the .metal and the .cpp file: binding indices, the index of the fault
 * record where there are faults, their codes, the constants, and the params struct.
 */
export function paramsHeader(
  kernel: Pick<Kernel, "name" | "buffers" | "params" | "bufferNames" | "optional" | "constants" | "faults">,
): string {
  const struct = `${kernel.name.replace(/(^|_)([a-z0-9])/g, (_, __, c: string) => c.toUpperCase())}Params`;
  const macro = (name: string) => `${kernel.name.toUpperCase()}_${name.replace(/([A-Z])/g, "_$1").toUpperCase()}`;
  const count = kernel.bufferNames.length;
  const faults = Object.keys(kernel.faults ?? {});
  const fields = Object.entries(kernel.params).map(([name, scalar]) => `${C_TYPES[scalar]} ${name};`);
  if (kernel.optional) fields.push("uint32_t present;  // a bit for each buffer");
  if (fields.length === 0) fields.push("uint32_t unused;");
  return [
    `// Generated from the declaration of ${kernel.name}; \`npm run gen\` rewrites it.`,
    "#pragma once",
    "#ifdef __METAL_VERSION__",
    "#include <metal_stdlib>",
    "#else",
    "#include <stdint.h>",
    "#endif",
    "",
    ...kernel.bufferNames.map((name, i) => `#define ${macro(name)} ${i}  // ${kernel.buffers[name]}`),
    `#define ${macro("params")} ${count}`,
    ...(faults.length ? [`#define ${macro("fault")} ${count + 1}`] : []),
    ...kernel.bufferNames.flatMap((name, i) =>
      kernel.buffers[name]?.endsWith("?") ? `#define ${macro(`has_${name}`)} ${2 ** i}u` : [],
    ),
    ...faults.map((name, i) => `#define ${macro(`fault_${name}`)} ${i + 1}`),
    ...Object.entries(kernel.constants ?? {}).map(([name, value]) => `#define ${macro(name)} ${value}`),
    "",
    `struct ${struct} {`,
    ...fields.map((field) => `  ${field}`),
    "};",
    `static_assert(sizeof(${struct}) == ${fields.length * 4}, "${struct} must match the declaration of ${kernel.name}");`,
    "",
  ].join("\n");
}
