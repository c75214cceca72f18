// The READMEs say how a package is installed: with the packages that it expects beside it.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { publishedPackages, root } from "../check/packages.ts";
import { commandsOf } from "./readme_blocks.ts";

const folders = [...publishedPackages.map((name) => join("packages", name)), join("apps", "cli")];

describe("the command that installs", () => {
  it.each(folders)("%s names it and its peers", (folder) => {
    const read = (file: string) => readFileSync(join(root, folder, file), "utf8");
    const { name, peerDependencies = {}, peerDependenciesMeta = {} } = JSON.parse(read("package.json"));
    const commands = commandsOf(read("README.md")).map((line) => line.split(" "));
    const installs = commands.filter(([program, verb]) => program === "npm" && verb === "install");
    const needed = [name, ...Object.keys(peerDependencies).filter((peer) => !peerDependenciesMeta[peer]?.optional)];
    expect(installs.some((words) => needed.every((each) => words.includes(each)))).toBe(true);
  });
});
