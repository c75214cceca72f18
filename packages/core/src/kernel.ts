import { wrongKind, wrongValue } from "./errors.ts";
import type { LibraryDefinition } from "./library.ts";

/** How a kernel uses a buffer; a trailing `?` marks one that may be absent. */
export type Access = "read" | "write" | "readWrite" | "read?" | "write?" | "readWrite?";
/** Parameters are 4-byte scalars. */
export type Scalar = "u32" | "i32" | "f32";

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
  /** Pairs [output, input] that may be exactly the same view. */
  inPlace?: readonly (readonly [keyof B & string, keyof B & string])[];
  launch(sizes: S): Launch;
}

/** A kernel's declaration, completed: what a dispatch needs to know. */
export interface Kernel<
  B extends Record<string, Access> = Record<string, Access>,
  P extends Record<string, Scalar> = Record<string, Scalar>,
  S = never,
> extends KernelDeclaration<B, P, S> {
  readonly bufferNames: readonly (keyof B & string)[];
  readonly paramNames: readonly (keyof P & string)[];
}

const IDENTIFIER = /^[a-z][A-Za-z0-9]*$/;

/** Declares a kernel once: names, binding order with access, params and launch. The params header is generated from it. */
export function defineKernel<B extends Record<string, Access>, P extends Record<string, Scalar>, S>(
  declaration: KernelDeclaration<B, P, S>,
): Kernel<B, P, S> {
  const op = "defineKernel";
  const { name, buffers, params, variants } = declaration;
  if (!/^[a-z][a-z0-9]*(_[a-z0-9]+)*$/.test(name)) throw wrongValue(op, "name", "be in snake_case", name);
  if (variants.length === 0) throw wrongValue(op, "variants", "name at least one variant", variants);
  for (const key of [...Object.keys(buffers), ...Object.keys(params)])
    if (!IDENTIFIER.test(key)) throw wrongValue(op, key, "be in camelCase", key);
  for (const [key, scalar] of Object.entries(params))
    if (!["u32", "i32", "f32"].includes(scalar)) throw wrongKind(op, key, "be u32, i32 or f32", scalar);
  return { ...declaration, bufferNames: Object.keys(buffers), paramNames: Object.keys(params) };
}

const C_TYPES: Record<Scalar, string> = { u32: "uint32_t", i32: "int32_t", f32: "float" };

/** The text of `native/<name>.params.h`: binding indices and the params struct, for both the .metal and the .cpp file. */
export function paramsHeader(kernel: Pick<Kernel, "name" | "buffers" | "params" | "bufferNames">): string {
  const struct = `${kernel.name.replace(/(^|_)([a-z0-9])/g, (_, __, c: string) => c.toUpperCase())}Params`;
  const macro = (name: string) => `${kernel.name.toUpperCase()}_${name.replace(/([A-Z])/g, "_$1").toUpperCase()}`;
  const fields = Object.entries(kernel.params);
  return [
    `// Generated from the declaration of ${kernel.name}; \`npm run gen\` rewrites it.`,
    "#pragma once",
    "#ifndef __METAL_VERSION__",
    "#include <stdint.h>",
    "#endif",
    "",
    ...kernel.bufferNames.map((name, i) => `#define ${macro(name)} ${i}  // ${kernel.buffers[name]}`),
    `#define ${macro("params")} ${kernel.bufferNames.length}`,
    "",
    `struct ${struct} {`,
    ...(fields.length ? fields.map(([name, scalar]) => `  ${C_TYPES[scalar]} ${name};`) : ["  uint32_t unused;"]),
    "};",
    `static_assert(sizeof(${struct}) == ${Math.max(1, fields.length) * 4}, "${struct} must match the declaration of ${kernel.name}");`,
    "",
  ].join("\n");
}
