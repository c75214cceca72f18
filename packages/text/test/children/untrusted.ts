// Opens and uses hostile files in a process that has little memory; prints how each call ends.
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Tokenizer } from "../../src/node.ts";
import { hostileTokenizers, TEMPLATES } from "../untrusted_files.ts";

const [fixture] = process.argv.slice(2) as [string];
const folder = mkdtempSync(join(tmpdir(), "mlxts-untrusted-"));
const report: Record<string, { code: string; message: string; ms: number }> = {};

/** Time of this process's own, in which it does not wait for a busy machine. */
const cpuMs = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};

function use(name: string, call: () => unknown): void {
  const begin = cpuMs();
  let [code, message] = ["none", ""];
  try {
    call();
  } catch (error) {
    code = (error as { code?: string }).code ?? (error as Error).name;
    message = (error as Error).message;
  }
  report[name] = { code, message, ms: Math.round(cpuMs() - begin) };
}

try {
  const files = hostileTokenizers(fixture);
  const plain = join(folder, "tokenizer.json");
  for (const [name, json] of Object.entries(files)) {
    writeFileSync(plain, json);
    use(`tokenizer: ${name}`, () => {
      const tokenizer = new Tokenizer(folder);
      for (const text of [`${"a".repeat(40)}!`, "aé".repeat(5_000)]) tokenizer.encode(text);
      tokenizer.decode([5, 4096, 7]);
    });
  }
  copyFileSync(join(fixture, "tokenizer.json"), plain);
  for (const [name, template] of Object.entries(TEMPLATES)) {
    writeFileSync(join(folder, "chat_template.jinja"), template);
    use(`template: ${name}`, () => new Tokenizer(folder).chat([{ role: "user", content: "hi" }]));
  }
} finally {
  rmSync(folder, { recursive: true });
}
process.stdout.write(JSON.stringify(report));
