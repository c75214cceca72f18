// What shells complete, by sourcing the scripts that `mlxts completion` prints.
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { flagOf } from "../src/contract.ts";
import { COMMANDS } from "../src/main.ts";
import { publicOps } from "../src/op_list.ts";
import { inProcess, testFolder } from "./helpers.ts";

const folder = testFolder();
const missing = (shell: string) => spawnSync(shell, ["-c", ":"]).status !== 0;

async function scriptOf(shell: string): Promise<string> {
  const { status, stdout, stderr } = await inProcess("completion", shell);
  expect([status, stderr]).toEqual([0, ""]);
  const path = join(folder, `mlxts.${shell}`);
  writeFileSync(path, stdout);
  return path;
}

/** The words that a shell offers for the last one of each command line. */
type Complete = (path: string, words: readonly string[]) => string;

const inBash: Complete = (path, words) =>
  `source ${path}; COMP_WORDS=(${words.map((word) => `'${word}'`).join(" ")}); COMP_CWORD=${words.length - 1}
  _mlxts; printf '%s\\n' "\${COMPREPLY[@]}"`;
const inFish: Complete = (path, words) => `source ${path}; complete -C '${words.join(" ")}'`;

function offered(shell: string, script: string): string[] {
  const { status, stdout, stderr } = spawnSync(shell, ["-c", script], { encoding: "utf8", cwd: folder });
  expect([status, stderr]).toEqual([0, ""]);
  // fish puts what a word is for behind it.
  return stdout
    .split("\n")
    .filter(Boolean)
    .map((line) => line.split("\t")[0] as string)
    .sort();
}

const visible = COMMANDS.filter(({ hidden }) => !hidden);
const shells = [
  ["bash", inBash],
  ["fish", inFish],
] as const;

describe.each(shells.filter(([shell]) => !missing(shell)))("%s completes", (shell, complete) => {
  const after = async (...words: string[]) => offered(shell, complete(await scriptOf(shell), ["mlxts", ...words]));

  it("commands", async () => {
    const names = new Set([...visible.map(({ name }) => name.split(" ")[0]), "help"]);
    expect(await after("")).toEqual([...names].sort());
    expect(await after("insp")).toEqual(["inspect"]);
    expect(await after("bench", "m")).toEqual(["machine", "model"]);
    expect(await after("help", "dev")).toEqual(["devices"]);
  });

  it.each(visible.map(({ name, options }) => [name, options] as const))("options of %s", async (name, options) => {
    expect(await after(...name.split(" "), "--")).toEqual([...Object.keys(options).map(flagOf), "--help"].sort());
  });

  it("values and names of ops", async () => {
    expect(await after("quantize", "--bits", "")).toEqual(["4", "8"]);
    expect(await after("verify", "--device", "c")).toEqual(["cpu", "cuda"]);
    expect(await after("verify", "--op", "l2")).toEqual(["l2Norm"]);
    expect(await after("op", "")).toEqual([...publicOps().keys()].sort());
    expect(await after("completion", "z")).toEqual(["zsh"]);
  });
});

describe("completion", () => {
  it.skipIf(missing("bash"))("of bash knows `--bits=4`, and leaves files to the shell", async () => {
    const path = await scriptOf("bash");
    expect(offered("bash", inBash(path, ["mlxts", "quantize", "--bits", "="]))).toEqual(["4", "8"]);
    expect(offered("bash", inBash(path, ["mlxts", "quantize", "--bits", "=", "8"]))).toEqual(["8"]);
    expect(offered("bash", inBash(path, ["mlxts", "generate", ""]))).toEqual([]);
    expect(offered("bash", `source ${path}; complete -p mlxts`)).toEqual([
      "complete -o bashdefault -o default -F _mlxts mlxts",
    ]);
  });

  it.skipIf(missing("zsh"))("of zsh is a script that zsh loads (skipped without zsh)", async () => {
    const script = `autoload -Uz compinit; compinit -u -D; source ${await scriptOf("zsh")}; print $_comps[mlxts]`;
    expect(offered("zsh", script)).toEqual(["_mlxts"]);
  });

  it("of another shell is refused", async () => {
    expect(await inProcess("completion", "tcsh")).toEqual({
      status: 2,
      stdout: "",
      stderr: "completion: `<shell>` must be one of bash, zsh, fish, got tcsh\n",
    });
  });
});
