import { CPU, CUDA, type Dialect, OPENCL, replaceAddressSpaces, VARIABLE_STORAGE } from "./address_spaces.ts";
import { stripAttributes } from "./attributes.ts";
import { cudaEntry, cudaRefusals } from "./cuda_entries.ts";
import { declarations } from "./declarations.ts";
import { entryTable } from "./entries.ts";
import { type Refusal, refusal, untranslatable } from "./errors.ts";
import { findKernels } from "./kernels.ts";
import type { Kernel } from "./reflect.ts";
import { refusedTokens } from "./refusals.ts";
import { type Token, type Tokens, tokenize, unparse } from "./tokens.ts";

export interface Translation {
  /** C++ with line markers of the `.metal` text, to be compiled behind `shim/kernel.h`. */
  text: string;
  kernels: Kernel[];
}

/** Attributes with a meaning that the translation takes over; any other is refused. */
const UNDERSTOOD = new Set(["kernel", "host_name", "max_total_threads_per_threadgroup"]);
/** Attributes that C++ has too, or that only ask for an optimization. */
const HARMLESS = /^(maybe_unused|nodiscard|fallthrough|deprecated|(clang|gnu)::\w+)$/;

const FLOAT =
  /^(?:0[xX][\da-fA-F']*\.?[\da-fA-F']*[pP][+-]?\d+|(?!0[xX])(?:[\d']*\.[\d']*(?:[eE][+-]?\d+)?|[\d']+[eE][+-]?\d+))/;

/** In MSL a literal without suffix is a float. */
function replaceLiterals(tokens: readonly Token[], refusals: Refusal[], halves: boolean): void {
  for (const token of tokens) {
    if (!/^\.?\d/.test(token.text)) continue;
    const digits = FLOAT.exec(token.text)?.[0];
    const suffix = token.text.slice(digits?.length ?? 0);
    if (digits === undefined) {
      if (/^(\d+)[hH]$/.test(token.text))
        token.text = halves ? `${token.text.slice(0, -1)}.0h` : token.text.toLowerCase();
      continue;
    }
    if (suffix === "") token.text = `${digits}f`;
    else if (/^[hH]$/.test(suffix)) token.text = `${digits}h`;
    else if (/^(bf|BF)$/.test(suffix)) token.text = halves ? `bfloat(${digits}f)` : `${digits}bf`;
    else if (!/^[fF]$/.test(suffix)) refusals.push(refusal(token, token.text, "is not a literal of MSL"));
  }
}

function blank(tokens: readonly Token[], begin: number, end: number): void {
  for (let i = begin; i < end; i++) (tokens[i] as Token).text = "";
}

/** The text's instances again, as C++ has them; for the simulator the entry table makes them. */
function explicitInstances(kernels: readonly Kernel[]): Token[] {
  const instances = new Map(
    kernels.filter(({ callee }) => callee.endsWith(">")).map((kernel) => [kernel.callee, kernel]),
  );
  const lines = [...instances].map(
    ([callee, { file, line }]) =>
      `\n# ${line} ${JSON.stringify(file)}\ntemplate decltype(${callee}) ${callee.replace(/^::/, "")};`,
  );
  return tokenize(lines.join("")).tokens;
}

/** What an entry calls, for CUDA's compiler: arguments of a call that it left would pass through memory. */
const INLINE = "inline __attribute__((always_inline))";

/** Preprocessed `.metal` text → C++. Throws `Untranslatable` with every construct that has no faithful translation. */
function translateFor(dialect: Dialect, preprocessed: string, kernelWord = ""): { source: Tokens; kernels: Kernel[] } {
  const source = tokenize(preprocessed);
  const { tokens, includes, only } = source;
  const refusals: Refusal[] = [];
  const first = tokens[0];
  if (first && !includes.has("metal_stdlib"))
    refusals.push(refusal({ file: first.file, line: 1 }, "#include <metal_stdlib>", "is missing"));
  refusals.push(...refusedTokens(tokens, includes));
  const all = declarations(tokens);
  const { kernels, instantiations, bodies } = findKernels(tokens, all, refusals);
  for (const { begin, end } of instantiations) blank(tokens, begin, end);
  if (dialect === OPENCL) tokens.push(...explicitInstances(kernels));
  // Parameters of kernels are read by now; what other functions and types carry must be understood as well.
  const heads = all.filter(({ body }) => body && bodies.includes(body));
  stripAttributes(tokens, (attribute, i) => {
    if (HARMLESS.test(attribute.name)) return false;
    if (!UNDERSTOOD.has(attribute.name) && !heads.some(({ begin, end }) => i >= begin && i < end))
      refusals.push(refusal(attribute, `[[${attribute.text}]]`, "is not simulated"));
    return true;
  });
  replaceAddressSpaces(tokens, all, bodies, dialect, refusals);
  for (const { begin, end } of all)
    for (let i = begin; i < end; i++) if (tokens[i]?.text === "kernel") (tokens[i] as Token).text = kernelWord;
  replaceLiterals(tokens, refusals, dialect === OPENCL);
  if (refusals.length > 0)
    throw untranslatable(refusals.sort((a, b) => (a.file === b.file ? a.line - b.line : a.file < b.file ? -1 : 1)));
  return { source, kernels: only.size > 0 ? kernels.filter(({ name }) => only.has(name)) : kernels };
}

/** On a GPU an unrolled loop keeps its arrays in registers; on a CPU it gains little and takes several times as long to compile. */
const UNROLLED = /#pragma (?:clang loop unroll\(full\)|unroll)$/gm;
const rolled = (text: string) => text.replaceAll(UNROLLED, "");

/** Preprocessed `.metal` text → C++ for the simulator. */
export function translate(preprocessed: string): Translation {
  const { source, kernels } = translateFor(CPU, preprocessed);
  return { text: `#include "kernel.h"\n${rolled(unparse(source))}\n${entryTable(kernels)}`, kernels };
}

/** Hints to clang that CUDA's compiler has words for; it is told for all of a text that nothing is contracted. */
const PRAGMAS: readonly [RegExp, string][] = [
  [/#pragma clang loop unroll\(full\)/g, "#pragma unroll"],
  [/#pragma clang fp contract\(off\)/g, ""],
];

/** Preprocessed `.metal` text → CUDA C++ without entries, to be compiled with core's `cuda_metal.h`. */
export function translateForCuda(preprocessed: string, kernelWord = INLINE): Translation {
  const { source, kernels } = translateFor(CUDA, preprocessed, kernelWord);
  const refusals = [
    ...source.tokens
      .filter(({ text }) => text.includes(VARIABLE_STORAGE))
      .map((token) =>
        refusal(token, "threadgroup", "variables have no translation: take a [[threadgroup(n)]] argument"),
      ),
    ...cudaRefusals(kernels),
  ];
  if (refusals.length > 0) throw untranslatable(refusals);
  const text = PRAGMAS.reduce((before, [from, to]) => before.replace(from, to), unparse(source));
  return { text: `#include <cuda_metal.h>\nnamespace msl {\n${text}\n}  // namespace msl\n`, kernels };
}

/** Preprocessed `.metal` text → its CUDA C++, for the simulator to run as an NVIDIA GPU would. */
export function translateForSimulatedCuda(preprocessed: string): Translation {
  const { text, kernels } = translateForCuda(preprocessed, "");
  const entries = kernels.map((kernel) => cudaEntry(kernel)).join("");
  return { text: rolled(text) + entries + entryTable(kernels, "cuda"), kernels };
}

/** Names that MSL leaves free. */
const OPENCL_WORDS =
  /^(local|global|generic|pipe|read_only|write_only|read_write|vec_step|event_t|queue_t|image\w*_t)$/;

/** Preprocessed `.metal` text → C++ for OpenCL, which knows address spaces. */
export function translateForLint(preprocessed: string): { text: string; threadgroupVariables: Refusal[] } {
  const { source } = translateFor(OPENCL, preprocessed);
  for (const token of source.tokens) if (OPENCL_WORDS.test(token.text)) token.text += "_";
  const threadgroupVariables = source.tokens
    .filter(({ text }) => text.includes(VARIABLE_STORAGE))
    .map((token) =>
      refusal(token, "threadgroup", "variables are outside the portable subset: take a [[threadgroup(n)]] argument"),
    );
  return { text: `#include "lint.h"\n${unparse(source)}\n`, threadgroupVariables };
}
