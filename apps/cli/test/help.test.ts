import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { argumentOf, flagOf, parse } from "../src/contract.ts";
import { COMMANDS } from "../src/main.ts";
import { exampleOf } from "../src/op_describe.ts";
import { publicOps } from "../src/op_list.ts";
import { inProcess, root } from "./helpers.ts";

const readme = readFileSync(join(root, "apps", "cli", "README.md"), "utf8");
const commands = COMMANDS.filter(({ hidden }) => !hidden);

describe("help", () => {
  it.each(commands.map((command) => [command.name, command] as const))("of %s", async (name, command) => {
    const { status, stdout, stderr } = await inProcess("help", ...name.split(" "));
    expect([status, stderr]).toEqual([0, ""]);
    const places = Object.entries(command.arguments).map(([key, each]) => argumentOf(key, each));
    for (const each of [...places, ...Object.keys(command.options).map(flagOf), "-h, --help"])
      expect(stdout).toMatch(new RegExp(`^ {2}${each.replace(/[[\]]/g, "\\$&")} .*\\S`, "m"));
    for (const flag of ["--help", "-h"]) {
      expect(await inProcess(...name.split(" "), flag)).toEqual({ status, stdout, stderr });
      // Help is shown even if arguments are wrong or missing.
      expect(await inProcess(...name.split(" "), "a", "b", "c", flag)).toEqual({ status, stdout, stderr });
    }
    expect(readme, `README.md must have the text of \`mlxts help ${name}\``).toContain(
      `### ${name}\n\n\`\`\`text\n${stdout}\`\`\`\n`,
    );
  });

  it("of the program names every command, except hidden ones", async () => {
    const { stdout } = await inProcess("--help");
    for (const { name, summary } of commands)
      expect(stdout).toMatch(new RegExp(`^ {2}${name} +${summary.replace(/[.`[\]]/g, ".")}$`, "m"));
    expect(stdout).not.toContain("verify-child");
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
  const op = COMMANDS.find(({ name }) => name === "op") as (typeof COMMANDS)[number];

  it.each([...publicOps()])("%s", (name, { op: { op: descriptor } }) => {
    const [program, command, ...args] = exampleOf(descriptor).split(" ");
    expect([program, command]).toEqual(["mlxts", "op"]);
    expect(parse(op, args)).toMatchObject({ name, in: "case.safetensors", out: "result.safetensors" });
  });
});
