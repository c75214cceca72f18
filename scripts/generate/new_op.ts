// Starts a new op in a package: `pnpm new-op norms layer_norm` writes the eight places that an op has by hand, as an
// identity op that works on every device, then what is generated from them.
import { spawnSync } from "node:child_process";
import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { additions, type NewOp, newFiles } from "./new_op_files.ts";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");

function refuse(text: string): never {
  console.error(`${text}\nusage: pnpm new-op PACKAGE OP, for example pnpm new-op norms layer_norm`);
  process.exit(1);
}

function run(command: string, ...args: string[]): void {
  const { status } = spawnSync(command, args, { cwd: root, stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}

const pascal = (stem: string) => stem.replace(/(^|_)([a-z0-9])/g, (_, __, c: string) => c.toUpperCase());

const [name = "", stem = "", ...more] = process.argv.slice(2);
const folder = join(root, "packages", name);
const libraryFile = join(folder, "src", "library.ts");
if (!/^[a-z0-9-]+$/.test(name) || !existsSync(libraryFile)) refuse(`no package of ops is called "${name}"`);
if (!/^[a-z][a-z0-9]*(_[a-z0-9]+)*$/.test(stem) || more.length > 0) refuse("the op's name must be one, in snake_case");
const library = /export const (\w+) = defineLibrary/.exec(readFileSync(libraryFile, "utf8"))?.[1];
if (library === undefined) refuse(`${libraryFile} exports no library`);

const type = pascal(stem);
const op: NewOp = {
  stem,
  type,
  name: type.charAt(0).toLowerCase() + type.slice(1),
  macro: stem.toUpperCase(),
  library,
};
const files = newFiles(op);
for (const file of Object.keys(files)) if (existsSync(join(folder, file))) refuse(`packages/${name}/${file} exists`);

for (const [file, text] of Object.entries(files)) writeFileSync(join(folder, file), text);
for (const [file, text] of Object.entries(additions(op))) appendFileSync(join(folder, file), text);

const casesFile = join("scripts", "check", "kernel_cases.json");
const cases = JSON.parse(readFileSync(join(root, casesFile), "utf8"));
cases.everywhere[name] = [
  ...(cases.everywhere[name] ?? []),
  ...["f32", "f16", "bf16"].map((dtype) => `${op.name} ${dtype} [257]`),
];
writeFileSync(join(root, casesFile), `${JSON.stringify(cases, null, 2)}\n`);

run(process.execPath, "scripts/run-source.mjs", "scripts/generate/generate.ts");
run(join("node_modules", ".bin", "biome"), "check", "--write", "--log-level=error", `packages/${name}`);

const written = [
  ...[...Object.keys(files), ...Object.keys(additions(op))].map((file) => `  packages/${name}/${file}`),
  `  ${casesFile}: cases that run its kernels on all devices`,
];
console.log(`${op.name} is an identity op now; make it yours in\n${written.join("\n")}
then: npm run gen, npm run native -- --only ${name}, npx vitest run packages/${name}`);
