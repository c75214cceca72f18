import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import ts from "typescript";

/** A package whose modules are looked at: the folder of its sources, and the name by which it could import itself. */
interface Sources {
  folder: string;
  /** `@mlxts/core`, say: an import of that name is an import of `index.ts`. */
  packageName?: string;
}

/**
 * Circles of imports among the TypeScript modules of a folder, values and types alike: `a.ts → b.ts → a.ts`. Modules
 * that all reach each other are one entry, shown by one of their shortest circles.
 */
export function importCircles({ folder, packageName }: Sources): string[] {
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => /\.m?ts$/.test(name) && !/\.d\.m?ts$/.test(name))
    .map((name) => join(folder, name))
    .sort();
  const imports = new Map<string, string[]>();
  for (const file of files) imports.set(file, importsOf(file, folder, packageName));
  return mutuallyReachable(imports).map((group) =>
    shortestCircle(imports, group)
      .map((file) => relative(folder, file))
      .join(" → "),
  );
}

/** The files of the folder that a module imports or re-exports from, also in types: `import("./a.ts").A`. */
function importsOf(file: string, folder: string, packageName: string | undefined): string[] {
  const source = ts.createSourceFile(file, readFileSync(file, "utf8"), ts.ScriptTarget.Latest, true);
  const found = new Set<string>();
  const add = (specifier: ts.Node | undefined) => {
    if (specifier === undefined || !ts.isStringLiteralLike(specifier)) return;
    const path = resolveImport(specifier.text, file, folder, packageName);
    if (path !== undefined) found.add(path);
  };
  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) add(node.moduleSpecifier);
    else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) add(node.argument.literal);
    else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) add(node.arguments[0]);
    else if (ts.isModuleDeclaration(node) && ts.isStringLiteral(node.name)) add(node.name);
    ts.forEachChild(node, visit);
  };
  visit(source);
  return [...found];
}

/** The file in the folder that an import names; undefined for other packages and for files that are not TypeScript. */
function resolveImport(
  specifier: string,
  file: string,
  folder: string,
  packageName: string | undefined,
): string | undefined {
  if (specifier === packageName) return join(folder, "index.ts");
  if (!specifier.startsWith(".")) return undefined;
  const path = resolve(file, "..", specifier);
  const candidates = [path, `${path}.ts`, path.replace(/\.(m?)js$/, ".$1ts"), join(path, "index.ts")];
  const target = candidates.find((candidate) => /\.m?ts$/.test(candidate) && existsSync(candidate));
  return target !== undefined && !relative(folder, target).startsWith("..") ? target : undefined;
}

/** Groups of files that all reach each other (Tarjan's strongly connected components), without those of no circle. */
function mutuallyReachable(imports: ReadonlyMap<string, readonly string[]>): string[][] {
  const order = new Map<string, number>();
  const stack: string[] = [];
  const groups: string[][] = [];
  const visit = (file: string): number => {
    const index = order.size;
    order.set(file, index);
    let low = index;
    stack.push(file);
    for (const next of imports.get(file) ?? [])
      if (!order.has(next)) low = Math.min(low, visit(next));
      else if (stack.includes(next)) low = Math.min(low, order.get(next) as number);
    if (low === index) {
      const group = stack.splice(stack.indexOf(file));
      if (group.length > 1 || imports.get(file)?.includes(file)) groups.push(group.sort());
    }
    return low;
  };
  for (const file of imports.keys()) if (!order.has(file)) visit(file);
  return groups;
}

/** The first of the shortest circles in a group, from its first file back to it. */
function shortestCircle(imports: ReadonlyMap<string, readonly string[]>, group: readonly string[]): string[] {
  const circles = group.map((start) => {
    const paths = [[start]];
    const seen = new Set<string>();
    for (const path of paths)
      for (const next of imports.get(path.at(-1) as string) ?? []) {
        if (next === start) return [...path, start];
        if (!group.includes(next) || seen.has(next)) continue;
        seen.add(next);
        paths.push([...path, next]);
      }
    return [];
  });
  return circles.reduce((a, b) => (b.length < a.length ? b : a));
}
