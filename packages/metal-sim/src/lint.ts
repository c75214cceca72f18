import { diagnose, type MetalSource } from "./compile.ts";
import { type Place, showPlace } from "./errors.ts";
import { libraryHint } from "./library_names.ts";

/** Something that a Metal compiler may refuse or warn of, or that is outside the portable subset. */
export interface LintFinding extends Place {
  kind: "error" | "warning" | "address-space" | "subset";
  message: string;
}

const LINE = /^(?<file>[^:\n]+):(?<line>\d+)(?::\d+)?: (?<level>(?:fatal )?error|warning|note): (?<message>.*)$/gm;

interface Diagnostic extends Place {
  level: string;
  message: string;
  notes: string[];
}

function parse(log: string): Diagnostic[] {
  const found: Diagnostic[] = [];
  for (const { groups = {} } of log.matchAll(LINE)) {
    const { file = "", line = "", level = "", message = "" } = groups;
    if (level === "note") found.at(-1)?.notes.push(message);
    else found.push({ file, line: Number(line), level: level.replace("fatal ", ""), message, notes: [] });
  }
  return found;
}

/** OpenCL's rules for copying structs are stricter than MSL's. */
const copiesStruct = ({ message, notes }: Diagnostic) =>
  notes.some((note) => /implicit (copy|move)/.test(note)) &&
  /no matching constructor|no viable overloaded '='/.test(message);

/** So are those for the two values of `?:`, which may be of one type in any places. */
function choosesValue({ message }: Diagnostic): boolean {
  const [, a, b] = /^incompatible operand types \('([^*]*?)'.* and '([^*]*?)'/.exec(message) ?? [];
  const unqualified = (type: string) => type.replace(/\b(const|__\w+) /g, "");
  return a !== undefined && b !== undefined && unqualified(a) === unqualified(b);
}

/** A pointer without address space that is given one: what the pass without generic pointers is there for. */
const givesSpace = ({ message, notes }: Diagnostic) =>
  /^(cannot initialize|assigning|incompatible pointer).*\*/.test(message) ||
  notes.some((note) => /cannot pass pointer to address space .* as a pointer to address space '__private'/.test(note));

const inMslWords = (message: string) =>
  message
    .replace(/__private /g, "thread ")
    .replace(/__global/g, "device")
    .replace(/__local/g, "threadgroup")
    .replace(/__constant/g, "constant")
    .replace(/ \*thread '/g, " *'")
    .replace(/ \*__private'/g, " *'");

/**
 * Checks `.metal` text without running it: what a C++ compiler warns of, address spaces, the portable subset.
 * @throws MetalSimError `NoCompiler`, `Untranslatable` or `Compile`
 */
export function lint(source: MetalSource): LintFinding[] {
  const { cpp, opencl, openclPrivate, threadgroupVariables } = diagnose(source);
  const found = new Map<string, LintFinding>();
  const add = (finding: LintFinding) => {
    const key = `${finding.file}:${finding.line}:${finding.kind}`;
    if (!found.has(key)) found.set(key, finding);
  };
  const first = parse(cpp);
  for (const { file, line, level, message } of first)
    add({ file, line, kind: level === "error" ? "error" : "warning", message: libraryHint(message) ?? message });
  const wrong = new Set(first.filter(({ level }) => level === "error").map(showPlace));
  const addressSpaces = [...parse(opencl), ...parse(openclPrivate).filter(givesSpace)];
  for (const diagnostic of addressSpaces) {
    const { file, line, message } = diagnostic;
    if (!copiesStruct(diagnostic) && !choosesValue(diagnostic) && !wrong.has(showPlace(diagnostic)))
      add({ file, line, kind: "address-space", message: inMslWords(message) });
  }
  for (const { file, line, construct, reason } of threadgroupVariables)
    add({ file, line, kind: "subset", message: `\`${construct}\` ${reason}` });
  return [...found.values()].sort((a, b) => (a.file === b.file ? a.line - b.line : a.file < b.file ? -1 : 1));
}
