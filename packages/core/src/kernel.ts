import { type Dtype, isDtype } from "./dtype.ts";
import { MlxtsError, wrongKind, wrongValue } from "./errors.ts";
import { isOurs, registerKind } from "./identity.ts";
import { checkLibrary, type LibraryDefinition } from "./library_definition.ts";
import type { DeviceLimits } from "./native.ts";
import { checkOptionNames, namesOf, type OptionNames } from "./options.ts";
import { isArray } from "./shape.ts";

/** How a kernel uses a buffer; a trailing `?` marks one that may be absent. */
export type Access = "read" | "write" | "readWrite" | "read?" | "write?" | "readWrite?";
/** Whether a kernel reads from a buffer of that access. */
export const readsFrom = (access: Access): boolean => access !== "write" && access !== "write?";
/** Whether a kernel writes to a buffer of that access. */
export const writesTo = (access: Access): boolean => access !== "read" && access !== "read?";
/** Parameters are 4-byte scalars. */
export type Scalar = "u32" | "i32" | "f32";

/** The two worlds that kernels are written for: C++ and a GPU's shading language. */
export type World = "cpu" | "gpu";

/** What a launch rule and a kernel's constants are chosen by. A `Device` is one. */
export interface LaunchDevice {
  readonly kind: string;
  /** Whose launch rules it takes, where these are not those of its kind: a simulator of another kind. */
  readonly launchKind?: string;
  readonly gpu: boolean;
  readonly limits: DeviceLimits;
}

/**
 * The text of an error in the data, "`argument` must <rule>, got <value>", from the three words that the kernel leaves
 * and its parameters.
 */
export type Fault<P extends Record<string, Scalar>> = (
  words: readonly [number, number, number],
  params: { readonly [K in keyof P]: number },
) => string;

type Axes = readonly [x: number, y: number, z: number];
type Numbers = Readonly<Record<string, number>>;
/** Names and element types of arrays. */
type Arrays = Readonly<Record<string, Dtype>>;
/** What a kernel's declaration says for both worlds, or for one of them; `cuda`: what NVIDIA's GPUs have instead of `gpu`. */
interface Constants {
  readonly shared?: Numbers;
  readonly cpu?: Numbers;
  readonly gpu?: Numbers;
  readonly cuda?: Numbers;
}
interface ScratchArrays {
  readonly cpu?: Arrays;
  readonly gpu?: Arrays;
}
interface LaunchParams {
  readonly cpu?: Readonly<Record<string, Scalar>>;
  readonly gpu?: Readonly<Record<string, Scalar>>;
}
type Part<T, K extends string> = T extends { readonly [N in K]: infer V } ? V : Record<never, never>;
/** The constants that one world sees; which of two a GPU has, its kind decides. */
type ConstantsIn<C, W extends World> = Part<C, "shared"> & (W extends "gpu" ? OfGpus<C> : Part<C, W>);
type OfGpus<C> = {
  readonly [N in keyof Part<C, "gpu">]: N extends keyof Part<C, "cuda"> ? number : Part<C, "gpu">[N];
};

/** How one dispatch is cut into threadgroups. */
export type Launch<L = Record<never, never>, A = Record<never, never>> = {
  threadgroups: Axes;
  /** Default [1, 1, 1]: on a CPU a threadgroup is computed by one thread. */
  threadsPerThreadgroup?: Axes;
} & ([keyof L] extends [never] ? { params?: undefined } : { params: { readonly [K in keyof L]: number } }) &
  ([keyof A] extends [never] ? { scratch?: undefined } : { scratch: { readonly [K in keyof A]: readonly number[] } });

/** The launch of a dispatch with these sizes, on a device with these limits. */
export type LaunchRule<S, L, C, A> = (sizes: S, on: { limits: DeviceLimits; constants: C }) => Launch<L, A>;

export interface KernelDeclaration<
  B extends Record<string, Access>,
  P extends Record<string, Scalar>,
  S,
  L extends LaunchParams = Record<never, never>,
  C extends Constants = Record<never, never>,
  A extends ScratchArrays = Record<never, never>,
> {
  library: LibraryDefinition;
  /** The symbol is `name` + "_" + variant. */
  name: string;
  /** The dtype, or dtypes joined by `_`, of each instance. */
  variants: readonly string[];
  /** In binding order. */
  buffers: B;
  /** What a dispatch tells the kernel. */
  params: P;
  /** What a world's launch rule tells the kernel, beside `params`: how it has cut the work. */
  launchParams?: L;
  /**
   * Integers that launch rule and kernel agree on: of both worlds (`shared`) or of one. Macros in the header, an argument
   * of the launch rule. `cuda` has other values of some of `gpu`, for NVIDIA's GPUs.
   */
  constants?: C;
  /**
   * Arrays that the kernel works in: on a CPU, private to the thread that computes a threadgroup; on a GPU, threadgroup
   * memory. The launch rule gives their shapes, core their places, the header their names. Contents are undefined.
   */
  scratch?: A;
  /** What a kernel may find wrong in its data; the header has a code for each. */
  faults?: Record<string, Fault<P>>;
  /** Pairs [output, input] that may be exactly the same view. */
  inPlace?: readonly (readonly [keyof B & string, keyof B & string])[];
  /**
   * Buffers whose tensors may begin at any byte on a CPU, not only at multiples of their elements' size: as they lie in
   * files that do not align them.
   */
  anyByte?: readonly (keyof B & string)[];
  /**
   * Buffers that a CUDA kernel may read before `machine::wait_for_kernels()`, while kernels still run that were launched
   * before it: weights. It is launched so early only where no dispatch before it in a recording has written them.
   */
  early?: readonly (keyof B & string)[];
  /**
   * The most threads of a threadgroup that a rule for GPUs gives: kernels that are compiled beforehand are compiled for
   * so many. Default: what made-up sizes show.
   */
  mostThreads?: number;
  /** Variants with instructions that only GPUs of compute capability 9.0 have: compiled for these alone. */
  sm90a?: readonly string[];
  /** A rule for each world that has the kernel; a device kind may have a rule of its own. */
  launch: {
    cpu?: LaunchRule<S, Part<L, "cpu">, ConstantsIn<C, "cpu">, Part<A, "cpu">>;
    gpu?: LaunchRule<S, Part<L, "gpu">, ConstantsIn<C, "gpu">, Part<A, "gpu">>;
    metal?: LaunchRule<S, Part<L, "gpu">, ConstantsIn<C, "gpu">, Part<A, "gpu">>;
    cuda?: LaunchRule<S, Part<L, "gpu">, ConstantsIn<C, "gpu">, Part<A, "gpu">>;
  };
}

/** A kernel's declaration, checked, completed and frozen: what a dispatch needs to know. */
export interface Kernel<
  B extends Record<string, Access> = Record<string, Access>,
  P extends Record<string, Scalar> = Record<string, Scalar>,
  S = never,
  C extends Constants = Constants,
> {
  readonly library: LibraryDefinition;
  readonly name: string;
  readonly variants: readonly string[];
  readonly buffers: B;
  readonly params: P;
  readonly launchParams: Readonly<Record<World, Readonly<Record<string, Scalar>>>>;
  readonly constants: C;
  readonly scratch: Readonly<Record<World, Arrays>>;
  readonly inPlace: readonly (readonly [keyof B & string, keyof B & string])[];
  readonly anyByte: readonly (keyof B & string)[];
  readonly early: readonly (keyof B & string)[];
  readonly mostThreads: number | undefined;
  readonly sm90a: readonly string[];
  readonly launch: Readonly<Record<string, (sizes: S, on: never) => unknown>>;
  readonly bufferNames: readonly (keyof B & string)[];
  readonly paramNames: readonly string[];
  readonly launchParamNames: Readonly<Record<World, readonly string[]>>;
  /** Whether a buffer may be absent: the params then have `present`, a bit for each buffer. */
  readonly optional: boolean;
  /** A bit for each buffer that is in `early`, and for each that is written. */
  readonly earlySlots: number;
  readonly writtenSlots: number;
  /** Names and texts of `faults`; code 1 is the first. */
  readonly faultNames: readonly string[];
  readonly faultTexts: readonly Fault<P>[];
}

const IDENTIFIER = /^[a-z][A-Za-z0-9]*$/;
const ACCESSES: readonly string[] = ["read", "write", "readWrite", "read?", "write?", "readWrite?"] satisfies Access[];
type AnyDeclaration = KernelDeclaration<Record<string, Access>, Record<string, Scalar>, never>;
const FIELDS: OptionNames<AnyDeclaration> = {
  library: true,
  name: true,
  variants: true,
  buffers: true,
  params: true,
  launchParams: true,
  constants: true,
  scratch: true,
  faults: true,
  inPlace: true,
  anyByte: true,
  early: true,
  mostThreads: true,
  sm90a: true,
  launch: true,
};
const WORLDS: OptionNames<ScratchArrays> = { cpu: true, gpu: true };
const CONSTANT_WORLDS: OptionNames<Constants> = { shared: true, ...WORLDS, cuda: true };
const LAUNCH_KINDS: OptionNames<AnyDeclaration["launch"]> = { ...WORLDS, metal: true, cuda: true };

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

/** The same of an object that has such a record for each world. */
function copyWorlds<T extends object>(
  argument: string,
  worlds: T,
  known: OptionNames<T>,
  check: (name: string, value: unknown) => void,
): T {
  checkOptionNames<T>(OP, worlds, known, argument);
  const copy: Record<string, object> = {};
  for (const [world, record] of Object.entries(worlds)) copy[world] = copyRecord(argument, record as object, check);
  return Object.freeze(copy) as T;
}

function copyList<T>(argument: string, list: readonly T[], rule: string, fits: (item: T) => boolean): readonly T[] {
  if (!isArray(list)) throw wrongKind(OP, argument, "be an array", list);
  const copy = Array.from({ length: list.length }, (_, i) => list[i] as T);
  for (const item of copy) if (!fits(item)) throw wrongValue(OP, argument, rule, item);
  return Object.freeze(copy);
}

const oneOf = (values: readonly string[], rule: string) => (name: string, value: unknown) => {
  if (!values.includes(value as string)) throw wrongKind(OP, name, rule, value);
};
const checkAccess = oneOf(ACCESSES, `be one of ${ACCESSES.join(", ")}`);
const checkScalar = oneOf(["u32", "i32", "f32"], "be u32, i32 or f32");

function checkElement(name: string, value: unknown): void {
  if (!isDtype(value)) throw wrongKind(OP, name, "be a dtype", value);
}

/**
 * Declares a kernel once: names, binding order with access, params, constants, scratch and launch rules. The params header
 * is generated from it. The declaration is copied: changing it afterwards changes nothing.
 */
export function defineKernel<
  B extends Record<string, Access>,
  P extends Record<string, Scalar>,
  S,
  L extends LaunchParams = Record<never, never>,
  const C extends Constants = Record<never, never>,
  const A extends ScratchArrays = Record<never, never>,
>(declaration: KernelDeclaration<B, P, S, L, C, A>): Kernel<B, P, S, C> {
  checkOptionNames<object>(OP, declaration, FIELDS as OptionNames<object>, "declaration");
  const {
    library,
    name,
    launch,
    constants,
    scratch,
    faults,
    launchParams,
    inPlace,
    anyByte,
    early,
    mostThreads,
    sm90a,
    ...rest
  } = declaration;
  checkLibrary(OP, library);
  if (typeof name !== "string") throw wrongKind(OP, "name", "be a string", name);
  if (!/^[a-z][a-z0-9]*(_[a-z0-9]+)*$/.test(name)) throw wrongValue(OP, "name", "be in snake_case", name);
  const variants = copyList("variants", rest.variants, "be of letters, digits and _", isSymbolPart);
  if (variants.length === 0) throw wrongValue(OP, "variants", "name at least one variant", variants);
  const buffers = copyRecord("buffers", rest.buffers, checkAccess);
  const params = copyRecord("params", rest.params, checkScalar);
  const decided = copyWorlds<LaunchParams>("launchParams", launchParams ?? {}, WORLDS, (one, scalar) => {
    checkScalar(one, scalar);
    if (Object.hasOwn(params, one)) throw wrongValue(OP, one, "be in params or in launchParams", "both");
  });
  const texts = copyRecord("faults", faults ?? ({} as NonNullable<typeof faults>), checkFault);
  const arrays = copyWorlds<ScratchArrays>("scratch", scratch ?? {}, WORLDS, checkElement);
  const before = copyList(
    "early",
    early ?? [],
    "name buffers that are only read",
    (buffer) => Object.hasOwn(buffers, buffer) && !writesTo(buffers[buffer] as Access),
  );
  const kernel: Kernel<B, P, S, C> = Object.freeze({
    library,
    name,
    variants,
    buffers,
    params,
    launchParams: Object.freeze({ cpu: decided.cpu ?? NONE, gpu: decided.gpu ?? NONE }),
    constants: copyConstants(constants ?? ({} as C)),
    scratch: Object.freeze({ cpu: arrays.cpu ?? NONE, gpu: arrays.gpu ?? NONE }),
    inPlace: copyPairs(inPlace ?? [], buffers),
    anyByte: copyList("anyByte", anyByte ?? [], "name buffers", (buffer) => Object.hasOwn(buffers, buffer)),
    early: before,
    mostThreads: mostThreads === undefined ? undefined : checkMostThreads(mostThreads),
    sm90a: copyList("sm90a", sm90a ?? [], "name variants", (variant) => variants.includes(variant)),
    launch: copyRules(launch) as Kernel<B, P, S>["launch"],
    bufferNames: Object.freeze(Object.keys(buffers)),
    paramNames: Object.freeze(Object.keys(params)),
    launchParamNames: Object.freeze({
      cpu: Object.freeze(Object.keys(decided.cpu ?? NONE)),
      gpu: Object.freeze(Object.keys(decided.gpu ?? NONE)),
    }),
    optional: Object.values(buffers).some((access) => access.endsWith("?")),
    earlySlots: slots(buffers, (_, name) => before.includes(name)),
    writtenSlots: slots(buffers, writesTo),
    faultNames: Object.freeze(Object.keys(texts)),
    faultTexts: Object.freeze(Object.values(texts)),
  });
  kernels.add(kernel);
  return kernel;
}

const NONE = Object.freeze({});
const slots = (buffers: Readonly<Record<string, Access>>, has: (access: Access, name: string) => boolean): number =>
  Object.entries(buffers).reduce((mask, [name, access], i) => mask + (has(access, name) ? 2 ** i : 0), 0);
const isSymbolPart = (variant: unknown): boolean => typeof variant === "string" && /^[A-Za-z0-9_]+$/.test(variant);

function checkConstant(name: string, value: unknown): void {
  if (!Number.isInteger(value) || (value as number) < 0 || (value as number) > 0x7fffffff)
    throw wrongValue(OP, name, "be an integer from 0 to 2147483647", value);
}

function checkMostThreads(value: unknown): number {
  if (!Number.isInteger(value) || (value as number) < 1 || (value as number) > 1024)
    throw wrongValue(OP, "mostThreads", "be an integer from 1 to 1024", value);
  return value as number;
}

/** A name means one thing to each world: not shared and a world's own. */
function copyConstants<C extends Constants>(constants: C): C {
  const copy = copyWorlds<Constants>("constants", constants, CONSTANT_WORLDS, checkConstant);
  for (const name of Object.keys(copy.shared ?? {}))
    for (const world of ["cpu", "gpu"] as const)
      if (Object.hasOwn(copy[world] ?? {}, name)) throw wrongValue(OP, name, "be shared or of a world", "both");
  for (const name of Object.keys(copy.cuda ?? {}))
    if (!Object.hasOwn(copy.gpu ?? {}, name))
      throw wrongValue(OP, "constants.cuda", "have names of constants.gpu", name);
  return copy as C;
}

function copyRules<T extends object>(launch: T): T {
  checkOptionNames<T>(OP, launch, LAUNCH_KINDS as OptionNames<T>, "launch");
  const copy = copyRecord("launch", launch, (name, rule) => {
    if (typeof rule !== "function") throw wrongKind(OP, `launch.${name}`, "be a function", rule);
  });
  if (Object.keys(copy).length === 0) throw wrongValue(OP, "launch", "have a rule for cpu or gpu", launch);
  return copy;
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

export const worldOf = ({ gpu }: LaunchDevice): World => (gpu ? "gpu" : "cpu");

/** Whose launch rule and constants a device takes: its kind's own where there are such, else its world's. */
const launchKindOf = ({ launchKind, kind }: LaunchDevice): string => launchKind ?? kind;

/** The constants of each world of a kernel, and of CUDA's GPUs, put together when they are first asked for. */
const constantsByPlace = new WeakMap<Constants, Partial<Record<World | "cuda", Numbers>>>();

function constantsFor(device: LaunchDevice, constants: Constants): Numbers {
  const world = worldOf(device);
  const place = world === "gpu" && launchKindOf(device) === "cuda" ? "cuda" : world;
  const places = constantsByPlace.get(constants) ?? {};
  constantsByPlace.set(constants, places);
  places[place] ??= Object.freeze({
    ...constants.shared,
    ...constants[world],
    ...(place === "cuda" && constants.cuda),
  });
  return places[place];
}

/** The constants of a kernel on a device: the shared ones and those of its world, or kind. */
export function constantsOf<C extends Constants>(
  kernel: { readonly constants: C },
  device: LaunchDevice,
): Readonly<ConstantsIn<C, "cpu"> | ConstantsIn<C, "gpu">> {
  checkKernel("constantsOf", kernel);
  return constantsFor(device, kernel.constants) as never;
}

/** What the launch rule of a kernel for a device gives for these sizes, and the arrays whose shapes it gives. */
export function runLaunchRule(
  op: string,
  kernel: Pick<Kernel, "name" | "launch" | "library" | "scratch" | "constants">,
  sizes: unknown,
  device: LaunchDevice,
): { given: unknown; arrays: Arrays } {
  const world = worldOf(device);
  const rule = (kernel.launch[launchKindOf(device)] ?? kernel.launch[world]) as
    | ((sizes: unknown, on: unknown) => unknown)
    | undefined;
  if (rule === undefined)
    throw new MlxtsError("KernelNotFound", `${op}: kernel \`${kernel.name}\` is not made for ${device.kind} devices`, {
      name: kernel.name,
      library: kernel.library.name,
    });
  const given = rule(sizes, { limits: device.limits, constants: constantsFor(device, kernel.constants) });
  return { given, arrays: kernel.scratch[world] };
}
