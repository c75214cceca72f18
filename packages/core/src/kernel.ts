import { wrongKind, wrongValue } from "./errors.ts";
import { isOurs, registerKind } from "./identity.ts";
import { checkLibrary, type LibraryDefinition } from "./library.ts";
import type { DeviceLimits } from "./native.ts";
import { checkOptionNames, namesOf, type OptionNames } from "./options.ts";
import { isArray } from "./shape.ts";

/** How a kernel uses a buffer; a trailing `?` marks one that may be absent. */
export type Access = "read" | "write" | "readWrite" | "read?" | "write?" | "readWrite?";
/** Parameters are 4-byte scalars. */
export type Scalar = "u32" | "i32" | "f32";

/** What a launch rule may know of the device: GPUs want another decomposition than CPUs. */
export interface Machine {
  readonly gpu: boolean;
  readonly limits: Readonly<DeviceLimits>;
}

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

/** A kernel's declaration, checked, completed and frozen: what a dispatch needs to know. */
export interface Kernel<
  B extends Record<string, Access> = Record<string, Access>,
  P extends Record<string, Scalar> = Record<string, Scalar>,
  S = never,
> extends Readonly<KernelDeclaration<B, P, S>> {
  readonly bufferNames: readonly (keyof B & string)[];
  readonly paramNames: readonly (keyof P & string)[];
  /** Whether a buffer may be absent: the params then end in `present`, a bit for each buffer. */
  readonly optional: boolean;
  /** The texts of `faults`; code 1 is the first. */
  readonly faultTexts: readonly Fault<P>[];
}

const IDENTIFIER = /^[a-z][A-Za-z0-9]*$/;
const ACCESSES: readonly string[] = ["read", "write", "readWrite", "read?", "write?", "readWrite?"] satisfies Access[];
const FIELDS: OptionNames<KernelDeclaration<Record<string, Access>, Record<string, Scalar>, never>> = {
  library: true,
  name: true,
  variants: true,
  buffers: true,
  params: true,
  constants: true,
  faults: true,
  inPlace: true,
  launch: true,
};

const kernels = new WeakSet<object>();
registerKind("Kernel", (value) => kernels.has(value));

/** Refuses what no `defineKernel` has made. */
export function checkKernel(op: string, kernel: unknown): void {
  if (!(kernel !== null && typeof kernel === "object" && kernels.has(kernel)) && !isOurs("Kernel", kernel))
    throw wrongKind(op, "kernel", "be made by defineKernel", kernel);
}

const OP = "defineKernel";

/** A frozen copy of an object with camelCase names, each value checked. */
function copyRecord<T extends object>(argument: string, record: T, check: (name: string, value: unknown) => void): T {
  namesOf(OP, argument, record);
  const copy = { ...record };
  for (const [name, value] of Object.entries(copy)) {
    if (!IDENTIFIER.test(name)) throw wrongValue(OP, name, "be in camelCase", name);
    check(name, value);
  }
  return Object.freeze(copy);
}

function copyList<T>(argument: string, list: readonly T[], rule: string, fits: (item: T) => boolean): readonly T[] {
  if (!isArray(list)) throw wrongKind(OP, argument, "be an array", list);
  const copy = Array.from({ length: list.length }, (_, i) => list[i] as T);
  for (const item of copy) if (!fits(item)) throw wrongValue(OP, argument, rule, item);
  return Object.freeze(copy);
}

function checkAccess(name: string, value: unknown): void {
  if (!ACCESSES.includes(value as string)) throw wrongKind(OP, name, `be one of ${ACCESSES.join(", ")}`, value);
}

function checkScalar(name: string, value: unknown): void {
  if (!["u32", "i32", "f32"].includes(value as string)) throw wrongKind(OP, name, "be u32, i32 or f32", value);
}

/**
 * Declares a kernel once: names, binding order with access, params and launch. The params header is generated from it.
 * The declaration is copied: changing it afterwards changes nothing.
 */
export function defineKernel<B extends Record<string, Access>, P extends Record<string, Scalar>, S>(
  declaration: KernelDeclaration<B, P, S>,
): Kernel<B, P, S> {
  checkOptionNames<object>(OP, declaration, FIELDS as OptionNames<object>, "declaration");
  const { library, name, launch, constants, faults, inPlace, ...rest } = declaration;
  checkLibrary(OP, library);
  if (typeof name !== "string") throw wrongKind(OP, "name", "be a string", name);
  if (!/^[a-z][a-z0-9]*(_[a-z0-9]+)*$/.test(name)) throw wrongValue(OP, "name", "be in snake_case", name);
  const variants = copyList("variants", rest.variants, "be of letters, digits and _", isSymbolPart);
  if (variants.length === 0) throw wrongValue(OP, "variants", "name at least one variant", variants);
  const buffers = copyRecord("buffers", rest.buffers, checkAccess);
  const params = copyRecord("params", rest.params, checkScalar);
  const texts = copyRecord("faults", faults ?? ({} as NonNullable<typeof faults>), checkFault);
  if (typeof launch !== "function") throw wrongKind(OP, "launch", "be a function", launch);
  const kernel: Kernel<B, P, S> = Object.freeze({
    library,
    name,
    variants,
    buffers,
    params,
    launch,
    ...(constants !== undefined && { constants: copyRecord("constants", constants, checkConstant) }),
    ...(faults !== undefined && { faults: texts }),
    ...(inPlace !== undefined && { inPlace: copyPairs(inPlace, buffers) }),
    bufferNames: Object.freeze(Object.keys(buffers)),
    paramNames: Object.freeze(Object.keys(params)),
    optional: Object.values(buffers).some((access) => access.endsWith("?")),
    faultTexts: Object.freeze(Object.values(texts)),
  });
  kernels.add(kernel);
  return kernel;
}

const isSymbolPart = (variant: unknown): boolean => typeof variant === "string" && /^[A-Za-z0-9_]+$/.test(variant);

function checkConstant(name: string, value: unknown): void {
  if (!Number.isInteger(value) || (value as number) < 0 || (value as number) > 0x7fffffff)
    throw wrongValue(OP, name, "be an integer from 0 to 2147483647", value);
}

function checkFault(name: string, value: unknown): void {
  if (typeof value !== "function") throw wrongKind(OP, name, "be a function", value);
}

function copyPairs<N extends string>(pairs: readonly (readonly [N, N])[], buffers: Readonly<Record<N, Access>>) {
  const fits = (pair: unknown) => isArray(pair) && pair.length === 2;
  return Object.freeze(
    copyList("inPlace", pairs, "be pairs [output, input] of buffers", fits).map(
      (pair) => copyList("inPlace", pair, "name buffers", (name) => Object.hasOwn(buffers, name)) as readonly [N, N],
    ),
  );
}

const C_TYPES: Record<Scalar, string> = { u32: "uint32_t", i32: "int32_t", f32: "float" };

/**
 * The text of `native/<name>.params.h`, for both the .metal and the .cpp file: binding indices, the index of the fault
 * record where there are faults, their codes, the constants, and the params struct.
 */
export function paramsHeader<B extends Record<string, Access>, P extends Record<string, Scalar>>(
  kernel: Pick<Kernel<B, P>, "name" | "buffers" | "params" | "bufferNames" | "optional" | "constants" | "faults">,
): string {
  checkKernel("paramsHeader", kernel);
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
