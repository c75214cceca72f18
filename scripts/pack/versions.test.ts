// What a release makes of the packages' versions, and what a registry shows of the packages.
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { firstRing } from "@mlxts/test-kit/rings";
import { temporaryFolder } from "@mlxts/test-kit/temporary_folder";
import { describe, expect, it } from "vitest";
import { root } from "../check/packages.ts";
import { workspace } from "../native/workspace.mjs";

interface Manifest {
  folder: string;
  name: string;
  version: string;
  private?: boolean;
  [field: string]: unknown;
}

const all = workspace() as unknown as Manifest[];
const published = all.filter((each) => !each.private);
const json = (path: string) => JSON.parse(readFileSync(path, "utf8"));

/** The versions of all packages after a release of core with a change of that kind, made in a copy. */
function versionsAfter(kind: string): Set<string> {
  const copy = temporaryFolder("versions");
  const copied = [
    "package.json",
    "pnpm-workspace.yaml",
    ".changeset",
    ...all.map(({ folder }) => `${folder}/package.json`),
  ];
  for (const path of copied) {
    mkdirSync(dirname(join(copy, path)), { recursive: true });
    cpSync(join(root, path), join(copy, path), { recursive: true });
  }
  writeFileSync(join(copy, ".changeset", "one.md"), `---\n"@mlxts/core": ${kind}\n---\n\nA change.\n`);
  spawnSync("git", ["init", "--quiet"], { cwd: copy });
  const program = join(dirname(createRequire(import.meta.url).resolve("@changesets/cli/package.json")), "bin.js");
  const { status, stdout, stderr } = spawnSync(process.execPath, [program, "version"], { cwd: copy, encoding: "utf8" });
  expect(status, `${stdout}${stderr}`).toBe(0);
  return new Set(published.map(({ folder }) => json(join(copy, folder, "package.json")).version));
}

describe("a release", () => {
  const [version, ...others] = new Set(published.map((each) => each.version));
  const [major = 0, minor = 0, patch = 0] = (version ?? "").split(".").map(Number);
  const next = {
    patch: `${major}.${minor}.${patch + 1}`,
    minor: `${major}.${minor + 1}.0`,
    major: `${major + 1}.0.0`,
  };

  it("gives all packages one version", () => expect(others).toEqual([]));

  describe.each(Object.entries(next))("with a %s change of core", (kind, expected) => {
    it.skipIf(firstRing && kind !== "minor")(`makes all of them ${expected}`, () => {
      expect(versionsAfter(kind)).toEqual(new Set([expected]));
    });
  });

  it.each(published.map(({ name, ...each }) => [name, each] as const))("%s says where it comes from", (_, each) => {
    const { homepage, repository, bugs, keywords, folder } = each;
    const address = "https://github.com/mlxts/mlxts";
    expect({ homepage, repository, bugs }).toEqual({
      homepage: `${address}/tree/main/${folder}#readme`,
      repository: { type: "git", url: `git+${address}.git`, directory: folder },
      bugs: { url: `${address}/issues` },
    });
    expect(keywords).toContain("mlxts");
    const changes = join(root, folder, "CHANGELOG.md");
    expect(existsSync(changes) && readFileSync(changes, "utf8")).toContain(`\n## ${each.version}\n`);
  });
});
