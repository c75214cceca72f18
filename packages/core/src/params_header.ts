import type { Dtype } from "./dtype.ts";
import { type Access, checkKernel, type Kernel, type Scalar, type World } from "./kernel.ts";

/** What an element is called in the C++ of CPU kernels and in Metal. */
const TYPES: Record<Dtype, Record<World, string>> = {
  f32: { cpu: "float", gpu: "float" },
  f16: { cpu: "mlxts::f16", gpu: "half" },
  bf16: { cpu: "mlxts::bf16", gpu: "bfloat" },
  u32: { cpu: "uint32_t", gpu: "uint" },
  i32: { cpu: "int32_t", gpu: "int" },
  u16: { cpu: "uint16_t", gpu: "ushort" },
  i16: { cpu: "int16_t", gpu: "short" },
  u8: { cpu: "uint8_t", gpu: "uchar" },
  i8: { cpu: "int8_t", gpu: "char" },
  i64: { cpu: "int64_t", gpu: "long" },
};
const SCALARS: Record<Scalar, string> = { u32: "uint32_t", i32: "int32_t", f32: "float" };

/** Lines for each world; those that are the same in both stand once. */
function perWorld(lines: Record<World, readonly string[]>): string[] {
  const { cpu, gpu } = lines;
  if (cpu.join() === gpu.join()) return [...cpu];
  if (cpu.length === 0) return ["#ifdef __METAL_VERSION__", ...gpu, "#endif"];
  if (gpu.length === 0) return ["#ifndef __METAL_VERSION__", ...cpu, "#endif"];
  return ["#ifdef __METAL_VERSION__", ...gpu, "#else", ...cpu, "#endif"];
}
const bothWorlds = (make: (world: World) => readonly string[]) => perWorld({ cpu: make("cpu"), gpu: make("gpu") });

/** The struct of a kernel's scratch arrays, and the function that finds them in the memory of a launch. */
function scratchLines(name: string, arrays: Readonly<Record<string, Dtype>>, world: World): string[] {
  const names = Object.keys(arrays);
  if (names.length === 0) return [];
  const space = world === "gpu" ? "threadgroup " : "";
  const type = (array: string) => `${space}${TYPES[arrays[array] as Dtype][world]}*`;
  const from =
    world === "gpu"
      ? `threadgroup uchar* memory, constant ${name}Params& p`
      : `const MlxtsCpuLaunch& l, const ${name}Params& p`;
  return [
    `struct ${name}Scratch {`,
    ...names.map((array) => `  ${type(array)} ${array};`),
    "};",
    `inline ${name}Scratch scratch_of(${from}) {`,
    ...(world === "cpu" ? ["  unsigned char* memory = static_cast<unsigned char*>(l.scratch);"] : []),
    "  return {",
    ...names.map((array, i) =>
      world === "gpu"
        ? `      (${type(array)})(memory + p.scratch[${i}]),`
        : `      reinterpret_cast<${type(array)}>(memory + p.scratch[${i}]),`,
    ),
    "  };",
    "}",
  ];
}

/**
 * The text of `native/<name>.params.h`, for both the .metal and the .cpp file: binding indices, the index of the fault
 * record where there are faults, their codes, the constants, the params struct, and the scratch arrays.
 */
export function paramsHeader<B extends Record<string, Access>, P extends Record<string, Scalar>>(
  kernel: Kernel<B, P>,
): string {
  checkKernel("paramsHeader", kernel);
  const name = kernel.name.replace(/(^|_)([a-z0-9])/g, (_, __, c: string) => c.toUpperCase());
  const macro = (word: string) => `${kernel.name.toUpperCase()}_${word.replace(/([A-Z])/g, "_$1").toUpperCase()}`;
  const define = (word: string, value: string | number) => `#define ${macro(word)} ${value}`;
  const constants = (numbers: Readonly<Record<string, number>> = {}) =>
    Object.entries(numbers).map(([word, value]) => define(word, value));
  // CUDA's stand beside those that they replace.
  const gpuConstants = () => {
    const { gpu = {}, cuda = {} } = kernel.constants;
    const replaced = Object.entries(gpu).filter(([word]) => Object.hasOwn(cuda, word));
    const common = Object.entries(gpu).filter(([word]) => !Object.hasOwn(cuda, word));
    if (replaced.length === 0) return constants(gpu);
    return [
      ...constants(Object.fromEntries(common)),
      "#ifdef MLXTS_CUDA",
      ...constants(cuda),
      "#else",
      ...constants(Object.fromEntries(replaced)),
      "#endif",
    ];
  };
  const count = kernel.bufferNames.length;
  const members = (scalars: Readonly<Record<string, Scalar>>) =>
    Object.entries(scalars).map(([param, scalar]) => `  ${SCALARS[scalar]} ${param};`);
  const fields = members(kernel.params);
  if (kernel.optional) fields.push("  uint32_t present;  // a bit for each buffer");
  const places = (world: World) => Object.keys(kernel.scratch[world]).length;
  const words = (world: World) => fields.length + Object.keys(kernel.launchParams[world]).length + places(world);
  const ownFields = (world: World) => [
    ...members(kernel.launchParams[world]),
    ...(places(world) > 0 ? [`  uint32_t scratch[${places(world)}];  // byte offsets`] : []),
    ...(words(world) === 0 ? ["  uint32_t unused;"] : []),
  ];
  const assertion = (world: World) => [
    `static_assert(sizeof(${name}Params) == ${4 * Math.max(1, words(world))}, "${name}Params must match the declaration of ${kernel.name}");`,
  ];
  const needsTypes = Object.values(kernel.scratch.cpu).some((dtype) => dtype === "f16" || dtype === "bf16");
  return [
    `// Generated from the declaration of ${kernel.name}; \`npm run gen\` rewrites it.`,
    "#pragma once",
    "#ifdef __METAL_VERSION__",
    "#include <metal_stdlib>",
    "#else",
    "#include <stdint.h>",
    ...(places("cpu") > 0 ? ['#include "cpu_kernel.h"'] : []),
    ...(needsTypes ? ['#include "simd.h"'] : []),
    "#endif",
    "",
    ...kernel.bufferNames.map((buffer, i) => `${define(buffer, i)}  // ${kernel.buffers[buffer]}`),
    define("params", count),
    ...(kernel.faultNames.length > 0 ? [define("fault", count + 1)] : []),
    ...kernel.bufferNames.flatMap((buffer, i) =>
      kernel.buffers[buffer]?.endsWith("?") ? define(`has_${buffer}`, `${2 ** i}u`) : [],
    ),
    ...kernel.faultNames.map((fault, i) => define(`fault_${fault}`, i + 1)),
    ...constants(kernel.constants.shared),
    ...perWorld({ cpu: constants(kernel.constants.cpu), gpu: gpuConstants() }),
    "",
    `struct ${name}Params {`,
    ...fields,
    ...bothWorlds(ownFields),
    "};",
    ...bothWorlds(assertion),
    ...bothWorlds((world) => scratchLines(name, kernel.scratch[world], world)),
    "",
  ].join("\n");
}
