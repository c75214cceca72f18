// Opening a vocabulary of 250 000 tokens and encoding this repository's text, beside Hugging Face's library in one run:
// node scripts/run-source.mjs packages/text/bench/tokenizers.ts --python ENV/bin/python [--vocabularies FOLDER] [--runs 3]
// The environment needs `pip install tokenizers`. Processor time, one thread; the vocabularies are trained first, which
// takes some minutes, unless the folder has them.
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { TextStream } from "@mlxts/text";
import { Tokenizer } from "@mlxts/text/node";

const { values } = parseArgs({
  options: {
    python: { type: "string", default: "python3" },
    vocabularies: { type: "string" },
    runs: { type: "string", default: "3" },
  },
});
const runs = Number(values.runs);
const peer = fileURLToPath(new URL("tokenizers_peer.py", import.meta.url));
const work = mkdtempSync(join(tmpdir(), "mlxts-text-"));
process.on("exit", () => rmSync(work, { recursive: true }));
const corpus = join(work, "corpus.txt");
const files = execFileSync("git", ["ls-files", "*.ts", "*.md", "*.cpp", "*.hpp", "*.py", "*.mjs"], {
  encoding: "utf8",
});
const text = files
  .trim()
  .split("\n")
  .map((file) => readFileSync(file, "utf8"))
  .join("")
  .slice(0, 4_000_000);
writeFileSync(corpus, text);
const folder = values.vocabularies ?? join(work, "vocabularies");
const python = (...args: string[]) =>
  execFileSync(values.python, [peer, ...args], {
    encoding: "utf8",
    maxBuffer: 1 << 30,
    stdio: ["ignore", "pipe", "inherit"],
  });
if (!existsSync(folder)) python("make", folder, corpus);

/** The least processor time of several runs, in seconds. */
function least(run: () => void): number {
  let best = Number.POSITIVE_INFINITY;
  for (let count = 0; count < runs; count++) {
    const begin = process.cpuUsage();
    run();
    const { user, system } = process.cpuUsage(begin);
    best = Math.min(best, (user + system) / 1e6);
  }
  return best;
}

const row = (what: string, ours: number, theirs: number) =>
  console.log(
    `${what.padEnd(10)} ${ours.toFixed(3)} s, tokenizers ${theirs.toFixed(3)} s: ${(ours / theirs).toFixed(2)} times`,
  );

for (const name of ["bytes", "pieces"]) {
  const directory = join(folder, name);
  const { version, opening, encoding, ids } = JSON.parse(python("time", join(directory, "tokenizer.json"), corpus)) as {
    version: string;
    opening: number;
    encoding: number;
    ids: number[];
  };
  console.log(`${name}, ${text.length} characters, ${ids.length} tokens, tokenizers ${version}`);
  row(
    "opening",
    least(() => new Tokenizer(directory)),
    opening,
  );
  // Each run with a tokenizer that has seen nothing: it remembers words.
  const tokenizers = Array.from({ length: runs }, () => new Tokenizer(directory));
  let found: number[] = [];
  const seconds = least(() => {
    found = (tokenizers.pop() as Tokenizer).encode(text, { specialTokens: "none" });
  });
  row("encoding", seconds, encoding);
  const differing = found.findIndex((id, at) => id !== ids[at]);
  if (differing >= 0 || found.length !== ids.length) throw new Error(`ids differ at ${differing}`);
  const tokenizer = new Tokenizer(directory);
  let longest = 0;
  const begin = performance.now();
  let last = begin;
  const timer = setInterval(() => {
    longest = Math.max(longest, performance.now() - last);
    last = performance.now();
  }, 1);
  await tokenizer.encodeAsync(text, { specialTokens: "none" });
  clearInterval(timer);
  console.log(
    `encodeAsync ${((performance.now() - begin) / 1000).toFixed(3)} s, longest pause ${longest.toFixed(0)} ms`,
  );
  const stream = new TextStream(tokenizer);
  const line = ids.filter((id) => !tokenizer.decode([id]).includes("\n")).slice(0, 100_000);
  console.log(
    `TextStream of ${line.length} ids on one line: ${least(() => {
      for (const id of line) stream.push(id);
    }).toFixed(3)} s`,
  );
}
