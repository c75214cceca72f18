// esbuild lowers `using` for Node.js before 24 to a `try` whose variable for a caught error a loop does not reset: a turn
// that is left in order throws the error of an earlier turn again. Published code has no `using` in a loop until then.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";
import { expect, it } from "vitest";
import { root } from "./packages.ts";

/** The lines of `using` declarations that stand in a loop of their function. */
function linesInLoops(name: string, text: string): number[] {
  if (!/\busing\b/.test(text)) return [];
  const file = ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true);
  const lines: number[] = [];
  const visit = (node: ts.Node, inLoop: boolean): void => {
    const blockScoped = node.flags & ts.NodeFlags.BlockScoped;
    const isUsing = blockScoped === ts.NodeFlags.Using || blockScoped === ts.NodeFlags.AwaitUsing;
    if (inLoop && isUsing && ts.isVariableDeclarationList(node))
      lines.push(file.getLineAndCharacterOfPosition(node.getStart()).line + 1);
    const inside = ts.isFunctionLike(node) ? false : inLoop || ts.isIterationStatement(node, false);
    ts.forEachChild(node, (child) => visit(child, inside));
  };
  visit(file, false);
  return lines;
}

it("finds them in every loop, and nowhere else", () => {
  const text = `for (const x of y) {
  using a = x;
  f(() => { using b = x; while (b) { await using c = b; } });
}
do { if (x) { using d = x; } } while (x);
using e = y;
`;
  expect(linesInLoops("text.ts", text)).toEqual([2, 3, 5]);
});

it("published code has none", () => {
  const folders = ["packages", "apps"].flatMap((group) =>
    readdirSync(join(root, group)).map((name) => join(root, group, name, "src")),
  );
  const files = folders.flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(".ts"))
      .map((name) => join(folder, name)),
  );
  expect(files.length).toBeGreaterThan(200);
  const found = files.flatMap((path) =>
    linesInLoops(path, readFileSync(path, "utf8")).map((line) => `${path}:${line}`),
  );
  expect(found).toEqual([]);
});
