import { passedToCudaEntry } from "./cuda_entries.ts";
import { type Argument, type Kernel, POSITIONS, SIMDGROUP_WIDTHS } from "./reflect.ts";

const SPACES = { device: "kDevice", constant: "kConstant", threadgroup: "kThreadgroup" } as const;
const KINDS = { buffer: "kBuffer", threadgroup: "kThreadgroup", builtin: "kBuiltin" } as const;

/** What the entry passes for a parameter. */
function passed({ kind, index, indirection, attribute }: Argument): string {
  if (kind !== "builtin") return `${indirection === "pointer" ? "Pointer" : "Reference"}{a.${kind}[${index}]}`;
  if (POSITIONS.has(attribute)) return `Position{t.${attribute}}`;
  return SIMDGROUP_WIDTHS.has(attribute) ? "Index{kSimdgroupSize}" : `Index{t.${attribute}}`;
}

const quote = (text: string) => JSON.stringify(text);

function argumentRow(
  { name, kind, index, space, readOnly, type, attribute }: Argument,
  i: number,
  { file, line }: Kernel,
) {
  const fields = [
    quote(name),
    `ArgumentKind::${KINDS[kind]}`,
    `${index ?? 0}u`,
    `AddressSpace::${space ? SPACES[space] : "kThread"}`,
    String(readOnly ?? false),
    quote(type),
    `Of::kBytes[${i}]`,
    `Of::kAlign[${i}]`,
    quote(attribute),
    quote(file),
    `${line}u`,
  ];
  return `  {${fields.join(", ")}},`;
}

/** How the engine calls a kernel: types and names are those of the namespace that the text stands in. */
interface Call {
  namespace: string;
  callee(kernel: Kernel): string;
  call(kernel: Kernel): string;
}

const METAL: Call = {
  namespace: "metal_sim",
  callee: ({ callee }) => callee,
  call: (kernel) => `${kernel.callee}(${kernel.arguments.map(passed).join(", ")})`,
};

/** By way of the entry that NVRTC compiles. */
const CUDA: Call = {
  namespace: "msl",
  callee: ({ callee }) => callee.replace(/^::/, ""),
  call: (kernel) => `mlxts_${kernel.name}(${passedToCudaEntry(kernel).join(", ")})`,
};

/** C++ behind the translated text: an entry function for each kernel, and the module's table. */
export function entryTable(kernels: readonly Kernel[], language: "metal" | "cuda" = "metal"): string {
  const { namespace, callee, call } = language === "cuda" ? CUDA : METAL;
  const out = ['# 1 "metal-sim entries"'];
  for (const [k, kernel] of kernels.entries())
    out.push(
      `namespace ${namespace} {`,
      `typedef ::metal_sim::Parameters<decltype(${callee(kernel)})> Parameters_${k};`,
      // Not checked: it reads the engine's own memory, not the kernel's.
      `__attribute__((no_sanitize("thread"))) void call_${k}(const ::metal_sim::Arguments& a, const ::metal_sim::Thread& t) {`,
      `  (void)a, (void)t; ${call(kernel)};`,
      "}",
      "}",
    );
  out.push("namespace metal_sim {", "namespace entries {");
  for (const [k, kernel] of kernels.entries()) {
    const { name } = kernel;
    out.push(
      `namespace kernel_${k} {`,
      `typedef ::${namespace}::Parameters_${k} Of;`,
      "const Argument arguments[] = {",
      ...kernel.arguments.map((argument, i) => argumentRow(argument, i, kernel)),
      "  {},",
      "};",
      `const Kernel row = {${quote(name)}, ::${namespace}::call_${k}, arguments, ${kernel.arguments.length}u, ${kernel.maxThreads ?? 0}u, ` +
        `${quote(kernel.file)}, ${kernel.line}u};`,
      "}",
    );
  }
  out.push(
    `const Kernel kernels[] = {${kernels.map((_, k) => `kernel_${k}::row, `).join("")}{}};`,
    "#ifdef METAL_SIM_CHECK",
    "constexpr uint32_t kChecked = 1;",
    "#else",
    "constexpr uint32_t kChecked = 0;",
    "#endif",
    `const Module module = {kModuleVersion, kChecked, kernels, ${kernels.length}u, coverage_blocks};`,
    "}",
    "}",
    'extern "C" __attribute__((visibility("default"), nodebug)) const metal_sim::Module* metal_sim_module() {',
    "  return &metal_sim::entries::module;",
    "}",
    "",
  );
  return out.join("\n");
}
