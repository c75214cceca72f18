// `npm start`: a trained hybrid model continues a TypeScript declaration. Arguments go to `mlxts generate`.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { root } from "./pnpm.mjs";

const prompt = "export class EventEmitter {\n    ";
const sampling = ["--temp", "0.7", "--top-p", "0.9", "--seed", "1"];
const given = process.argv.slice(2);
const args = [
  "generate",
  join("fixtures", "tiny-qwen3.5"),
  ...(given.length > 0 ? given : ["--prompt", prompt, "--max-tokens", "200", ...sampling]),
];
if (given.length === 0) process.stdout.write(prompt);
const child = spawn(process.execPath, [join(root, "apps", "cli", "bin", "mlxts.mjs"), ...args], {
  cwd: root,
  stdio: "inherit",
});
// An interrupt from the terminal reaches the command as well; its end, with the summary, is waited for.
process.on("SIGINT", () => {});
process.on("SIGTERM", () => child.kill("SIGTERM"));
child.once("close", (status) => process.exit(status ?? 1));
