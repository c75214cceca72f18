// Tests of the published types: projects that import every entry of every package compile without errors, declarations
// included, however TypeScript resolves modules, and whether or not they have the types of Node.js.
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Place } from "./readmes.ts";

const RESOLUTIONS = [
  ["node", "CommonJS"],
  ["node16", "Node16"],
  ["bundler", "ESNext"],
] as const;

/** All modules that the installed packages of this project export. */
function modulesIn(scope: string): string[] {
  return readdirSync(scope).flatMap((name) => {
    const { exports } = JSON.parse(readFileSync(join(scope, name, "package.json"), "utf8"));
    return Object.keys(exports).map((entry) => `@mlxts/${name}${entry.slice(1)}`);
  });
}

/** Uses types of core, of an op and of models, so that a module without types would be an error. */
const USE = `
const device: core.Device = core.Device.open("cpu");
const tensor: core.Tensor = norms.rmsNorm(device.encoder(), { x: device.tensor("f32", [1, 4]), weight: device.tensor("f32", [4]) });
const options: models.LoadOptions = { activationDtype: "f32" };
// @ts-expect-error: there is no such device
core.Device.open("abacus");
// @ts-expect-error: only openCheckpoint makes one
new core.Checkpoint();
`;

export function consumerTypeTests({ root, project, run }: Place): void {
  describe("the types of all packages", { timeout: 300_000 }, () => {
    const sources = () => {
      const modules = modulesIn(join(project(), "node_modules", "@mlxts"));
      expect(modules).toEqual(expect.arrayContaining(["@mlxts/core", "@mlxts/norms/testing", "@mlxts/models"]));
      const imports = ["core", "norms", "models"].map((name) => `import * as ${name} from "@mlxts/${name}";`);
      const all = modules.map((name, i) => `import * as all${i} from "${name}";`);
      const list = modules.map((_, i) => `all${i}`).join(", ");
      return `${[...imports, ...all].join("\n")}\n${USE}\nexport const used = [tensor, options, ${list}];\n`;
    };

    it.each(
      RESOLUTIONS.flatMap(([resolution, module]) => [true, false].map((types) => [resolution, module, types] as const)),
    )("compile with moduleResolution %s (%s), types of Node.js: %s", (moduleResolution, module, nodeTypes) => {
      const folder = join(project(), `types-${moduleResolution}-${nodeTypes}`);
      mkdirSync(folder);
      writeFileSync(join(folder, "use.ts"), sources());
      if (nodeTypes)
        for (const name of ["@types/node", "undici-types"])
          cpSync(typesOf(root, name), join(folder, "node_modules", name), { recursive: true, dereference: true });
      const compilerOptions = {
        target: "ES2022",
        // Without the types of the DOM, too.
        lib: ["ES2022"],
        module,
        moduleResolution,
        types: nodeTypes ? ["node"] : [],
        strict: true,
        skipLibCheck: false,
        noEmit: true,
      };
      writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["use.ts"] }));
      const { status, text } = run(join(root, "node_modules", ".bin", "tsc"), ["-p", folder], folder);
      expect(text).toBe("");
      expect(status).toBe(0);
    });

    it("leave out what is marked as internal", () => {
      const scope = join(project(), "node_modules", "@mlxts");
      for (const name of readdirSync(scope))
        for (const file of readdirSync(join(scope, name, "dist"), { recursive: true }) as string[])
          if (/\.d\.c?ts$/.test(file))
            expect(readFileSync(join(scope, name, "dist", file), "utf8"), file).not.toContain("@internal");
    });
  });
}

/** The folder of a package of types in this clone; `undici-types` comes with those of Node.js. */
const typesOf = (root: string, name: string) =>
  name === "@types/node" ? join(root, "node_modules", name) : join(root, "node_modules", ".pnpm", "node_modules", name);
