// Builds every package and packs it as it would be published: node scripts/pack.mjs FOLDER
import { mkdirSync, readdirSync } from "node:fs";
import { resolve } from "node:path";
import { pnpm } from "./pnpm.mjs";

const [folder] = process.argv.slice(2);
if (!folder) {
  console.error("usage: node scripts/pack.mjs FOLDER");
  process.exit(1);
}
const target = resolve(folder);
mkdirSync(target, { recursive: true });
process.env.TURBO_TELEMETRY_DISABLED = "1";
pnpm("exec", "turbo", "run", "build");
pnpm("-r", "--filter", "./packages/*", "--filter", "./apps/*", "exec", "pnpm", "pack", "--pack-destination", target);
for (const file of readdirSync(target)) console.log(file);
