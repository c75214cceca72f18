// `npm start`: a trained hybrid model continues a TypeScript declaration. Arguments go to `mlxts generate`. package.json
// names the packages whose kernels this runs: no others are there yet in a fresh clone.
import { join } from "node:path";
import { importBundled } from "@mlxts/test-kit/bundled";
import { root } from "./pnpm.mjs";

const prompt = "export class EventEmitter {\n    ";
const sampling = ["--temp", "0.7", "--top-p", "0.9", "--seed", "1"];
const given = process.argv.slice(2);
const args = [
  "generate",
  join("fixtures", "tiny-qwen3.5"),
  ...(given.length > 0 ? given : ["--prompt", prompt, "--max-tokens", "200", ...sampling]),
];
process.chdir(root);
if (given.length === 0) process.stdout.write(prompt);
const { main } = await importBundled("apps/cli/src/main.ts", { packages: true });
process.exitCode = await main(args);
