const CONDITION = /^\s*#\s*(if|ifdef|ifndef|else|endif)\b\s*(\w*)/;

/** The text with spaces in place of the lines for C++ alone: what conditions on `__METAL_VERSION__` keep from Metal. */
export function metalLines(text: string): string {
  /** Whether Metal compiles the branch of each condition around a line; undefined for conditions on other names. */
  const branches: (boolean | undefined)[] = [];
  return text
    .split("\n")
    .map((line) => {
      const [, directive, name] = CONDITION.exec(line) ?? [];
      const last = branches.at(-1);
      if (directive === "endif") branches.pop();
      else if (directive === "else" && last !== undefined) branches[branches.length - 1] = !last;
      else if (directive?.startsWith("if"))
        branches.push(name === "__METAL_VERSION__" ? directive === "ifdef" : undefined);
      return directive || !branches.includes(false) ? line : " ".repeat(line.length);
    })
    .join("\n");
}
