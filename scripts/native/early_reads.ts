// What the PTX of a kernel does before `machine::wait_for_kernels()`, while kernels that it depends on may still run.

const WAIT = /^\/\/ sm_90: (@rare )?griddepcontrol\.wait;/;

interface Instruction {
  /** As `ld.global.u32`. */
  op: string;
  operands: string[];
  conditional: boolean;
}
type Line = Instruction | "wait" | { label: string };

/** The entry's parameters that are pointers, by name, with their indices, and the lines of its body. */
function parse(ptx: string): { pointers: Map<string, number>; lines: Line[] } {
  const [, header = "", body = ""] = /\.entry \w+\(([^)]*)\)[^{]*\{([\s\S]*)\}/.exec(ptx) ?? [];
  const pointers = new Map<string, number>();
  for (const [index, parameter] of header.split(",").entries()) {
    const [, name] = /\.u64.*?(\w+)$/.exec(parameter.trim()) ?? [];
    if (name !== undefined) pointers.set(name, index);
  }
  const lines: Line[] = [];
  for (const line of body.split("\n").map((each) => each.trim())) {
    if (WAIT.test(line)) lines.push("wait");
    for (const text of line.replace(/\/\/.*/, "").split(";")) {
      const [, label] = /^([$\w]+):/.exec(text) ?? [];
      if (label !== undefined) lines.push({ label });
      const [, predicate, op, rest = ""] = /^(@\S+)?\s*([a-z][\w.:]*)\s*(.*)$/.exec(text.replace(/^[{}\s]+/, "")) ?? [];
      if (label !== undefined || op === undefined) continue;
      // A vector and an address are one operand each.
      lines.push({
        op,
        operands: rest.match(/\{[^}]*\}|\[[^\]]*\]|[^,\s]+/g) ?? [],
        conditional: predicate !== undefined,
      });
    }
  }
  return { pointers, lines };
}

/** The instructions that some path runs before it waits, and whether one ends without waiting. */
function beforeWaits(lines: readonly Line[]): { before: Instruction[]; ends: boolean } {
  const labels = new Map<string, number>();
  for (const [at, line] of lines.entries()) if (line !== "wait" && "label" in line) labels.set(line.label, at);
  const seen = new Set<number>();
  const before: Instruction[] = [];
  let ends = false;
  const starts = [0];
  for (let start = starts.pop(); start !== undefined; start = starts.pop()) {
    for (let at = start; !seen.has(at); at++) {
      seen.add(at);
      const line = lines[at];
      if (line === "wait") break;
      if (line === undefined) {
        ends = true;
        break;
      }
      if ("label" in line) continue;
      before.push(line);
      if (/^(ret|exit)\b/.test(line.op)) ends = true;
      else if (line.op.startsWith("bra")) starts.push(labels.get(line.operands[0] as string) ?? lines.length);
      else continue;
      if (!line.conditional) break;
    }
  }
  return { before, ends };
}

const registersOf = (text: string) => text.match(/%\w+/g) ?? [];

/** The pointers that each register is made from. */
function pointersOf(instructions: readonly Instruction[], pointers: ReadonlyMap<string, number>) {
  const from = new Map<string, Set<number>>();
  const of = (text: string) => new Set(registersOf(text).flatMap((register) => [...(from.get(register) ?? [])]));
  for (let grown = true; grown; ) {
    grown = false;
    for (const { op, operands } of instructions) {
      const [to = "", ...others] = operands;
      const sources = of(others.join());
      const pointer = op.startsWith("ld.param") ? pointers.get(others[0]?.slice(1, -1) as string) : undefined;
      if (pointer !== undefined) sources.add(pointer);
      for (const register of registersOf(to)) {
        const known = from.get(register) ?? new Set();
        from.set(register, known);
        for (const source of sources) {
          grown ||= !known.has(source);
          known.add(source);
        }
      }
    }
  }
  return of;
}

const READS = /^(ld\.(?!param|shared|const|local)|cp\.async\S*\.global|ldu\b)/;
const REFUSED = /^(st|red|atom|multimem|brx|call|cp\.reduce)\b/;

/**
 * What a kernel does before it waits and must not: it reads other buffers than those of these indices, writes to memory
 * of the device, or ends. A kernel that nowhere says that it waits is made to do so at its begin.
 */
export function earlyFaults(ptx: string, early: ReadonlySet<number>): string[] {
  const { pointers, lines } = parse(ptx);
  if (!lines.includes("wait")) return [];
  const { before, ends } = beforeWaits(lines);
  const sourcesOf = pointersOf(before, pointers);
  const faults = ends ? ["it ends"] : [];
  for (const { op, operands } of before) {
    if (REFUSED.test(op) && !/\.shared\b/.test(op)) faults.push(`it has ${op}`);
    if (!READS.test(op)) continue;
    const sources = [...sourcesOf(operands[1] as string)].sort();
    if (sources.length === 0) faults.push(`${op} reads from anywhere`);
    for (const source of sources) if (!early.has(source)) faults.push(`${op} reads buffer ${source}`);
  }
  return [...new Set(faults)];
}
