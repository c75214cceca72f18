import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { argumentOf, flagOf, readCommandLine } from "../src/contract.ts";
import { COMMANDS, PROGRAM } from "../src/main.ts";
import { exampleOf } from "../src/op_describe.ts";
import { publicOps } from "../src/op_list.ts";
import { inProcess, root } from "./helpers.ts";

const readme = readFileSync(join(root, "apps", "cli", "README.md"), "utf8");
const commands = COMMANDS.filter(({ hidden }) => !hidden);

describe("help", () => {
  it.each(commands.map((command) => [command.name, command] as const))("of %s", async (name, command) => {
    const { status, stdout, stderr } = await inProcess("help", ...name.split(" "));
    expect([status, stderr]).toEqual([0, ""]);
    const places = Object.entries(command.arguments).map(([key, each]) => argumentOf(key, each).slice(1, -1));
    for (const each of [...places, ...Object.keys(command.options).map(flagOf), "-h, --help"])
      expect(stdout).toMatch(new RegExp(`^ {2}${each.replace(/[[\]]/g, "\\$&")} .*\\S`, "m"));
    for (const flag of ["--help", "-h"]) {
      expect(await inProcess(...name.split(" "), flag)).toEqual({ status, stdout, stderr });
      // Help is shown even if arguments are wrong or missing.
      expect(await inProcess(...name.split(" "), "a", "b", "c", flag)).toEqual({ status, stdout, stderr });
    }
    // How wide it is, a terminal says; here there is none.
    expect(Math.max(...stdout.split("\n").map((line) => line.length))).toBeLessThanOrEqual(120);
    expect(readme, `README.md must have the text of \`mlxts help ${name}\``).toContain(
      `### ${name}\n\n\`\`\`text\n${stdout}\`\`\`\n`,
    );
  });

  it("of the program names every command, except hidden ones", async () => {
    const { stdout } = await inProcess("--help");
    const onOneLine = stdout.replace(/\s+/g, " ");
    for (const { name, summary } of commands.filter((each) => !each.name.includes(" ")))
      expect(onOneLine).toMatch(new RegExp(` ${name}( [^ ]+)* ${summary.replace(/[.`[\]]/g, ".")}`));
    expect(stdout).toContain("\n  bench ");
    expect(stdout).not.toContain("verify-child");
    // Without a command nothing is done: help in place of an error, with the exit code of wrong usage.
    expect(await inProcess()).toEqual({ status: 2, stdout: "", stderr: stdout });
    const bench = await inProcess("help", "bench");
    expect(bench.stdout).toMatch(/\n {2}model /);
    expect(await inProcess("bench")).toEqual({ status: 2, stdout: "", stderr: bench.stdout });
    for (const args of [["-h"], ["help"], ["help", "help"], ["help", "--help"], ["--help", "-h"]])
      expect((await inProcess(...args)).stdout).toBe(stdout);
    expect(await inProcess("--version")).toEqual({
      status: 0,
      stdout: expect.stringMatching(/^\d+\.\d+\.\d+\n$/),
      stderr: "",
    });
  });
});

describe("examples of ops", () => {
  it.each([...publicOps()])("%s", async (name, { op: { op: descriptor } }) => {
    const [program, ...words] = exampleOf(descriptor).split(" ");
    expect(program).toBe("mlxts");
    const read: unknown[] = [];
    await readCommandLine(PROGRAM, words, (of, given) => read.push(of.name, given));
    expect(read).toEqual(["op", expect.objectContaining({ name, in: "case.safetensors", out: "result.safetensors" })]);
  });
});
