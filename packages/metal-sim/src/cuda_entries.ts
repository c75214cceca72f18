// The entry functions of kernels in a CUDA translation.
import { type Refusal, refusal } from "./errors.ts";
import { type Argument, type Kernel, POSITIONS, SIMDGROUP_WIDTHS } from "./reflect.ts";

/** The most threads of a threadgroup on any GPU. */
const MOST_THREADS = 1024;

const byValue = ({ space, indirection }: Argument) => space === "constant" && indirection === "reference";

/** The buffers in the order of their indices; an index that the kernel does not have stands for none. */
function buffersOf(kernel: Kernel): (Argument | undefined)[] {
  const buffers = kernel.arguments.filter(({ kind }) => kind === "buffer");
  const count = Math.max(-1, ...buffers.map(({ index = 0 }) => index)) + 1;
  return Array.from({ length: count }, (_, index) => buffers.find((each) => each.index === index));
}

/** Where a buffer lies; nobody reads what the kernel does not have. */
const pointerTo = (buffer: Argument | undefined) =>
  buffer === undefined ? "const void*" : `${buffer.readOnly ? "const " : ""}${buffer.type}*`;

const parameters = (kernel: Kernel) =>
  buffersOf(kernel).map((buffer, index) =>
    buffer && byValue(buffer) ? `MLXTS_CUDA_PARAM ${buffer.type} b${index}` : `${pointerTo(buffer)} b${index}`,
  );

/** What the simulator's engine passes to an entry, from its `Arguments` a. */
export const passedToCudaEntry = (kernel: Kernel): string[] =>
  buffersOf(kernel).map((buffer, index) => {
    const pointer = `(${pointerTo(buffer)})a.buffer[${index}]`;
    return buffer && byValue(buffer) ? `*${pointer}` : pointer;
  });

/** What the entry passes for a parameter of the kernel. */
function passed(argument: Argument): string {
  const { kind, type, index, indirection, attribute } = argument;
  if (kind === "threadgroup") {
    const memory = `(${type}*)machine::threadgroup_memory()`;
    return indirection === "pointer" ? memory : `*${memory}`;
  }
  if (kind === "buffer") return indirection === "pointer" || byValue(argument) ? `b${index}` : `*b${index}`;
  if (POSITIONS.has(attribute)) return `entries::Position{entries::${attribute}()}`;
  return `entries::Index{${SIMDGROUP_WIDTHS.has(attribute) ? "32u" : `entries::${attribute}()`}}`;
}

/** The entry `mlxts_<kernel>`, which is compiled for threadgroups of at most `threads` threads. */
export function cudaEntry(kernel: Kernel, threads = kernel.maxThreads ?? MOST_THREADS): string {
  const callee = kernel.callee.replace(/^::/, "");
  return [
    "namespace msl {",
    `MLXTS_CUDA_ENTRY(${threads}) mlxts_${kernel.name}(${parameters(kernel).join(", ")}) {`,
    `  ${callee}(${kernel.arguments.map(passed).join(", ")});`,
    "}",
    "}  // namespace msl",
    "",
  ].join("\n");
}

/** Threadgroup memory is one array, whose size the launch gives. */
export function cudaRefusals(kernels: readonly Kernel[]): Refusal[] {
  return kernels.flatMap((kernel) => {
    const second = kernel.arguments.filter(({ kind }) => kind === "threadgroup")[1];
    if (second === undefined) return [];
    return [refusal(kernel, `[[${second.attribute}]]`, "is a second threadgroup argument, which CUDA does not have")];
  });
}
