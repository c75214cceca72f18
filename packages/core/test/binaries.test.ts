import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { describe, expect, it } from "vitest";
import { PLATFORM, prebuilt } from "../src/binaries.ts";
import { cpuLevels, defineKernel, defineLibrary, type LibraryDefinition } from "../src/index.ts";
import { caught, testDevice, testFolder } from "./helpers.ts";
import { incrementKernel, probeLibrary } from "./kernels/probe.ts";

const device = testDevice();
const folder = testFolder();
const levels = cpuLevels();

/** A package with binaries under the names given, each a copy of a file or a text. */
function packageWith(name: string, binaries: Record<string, { copy?: string; text?: string }>): LibraryDefinition {
  const root = join(folder, name);
  mkdirSync(join(root, "native"), { recursive: true });
  for (const [file, { copy, text = "" }] of Object.entries(binaries)) {
    const path = join(root, "prebuilds", file);
    mkdirSync(dirname(path), { recursive: true });
    if (copy) copyFileSync(copy, path);
    else writeFileSync(path, text);
  }
  return defineLibrary(name, pathToFileURL(join(root, "src", "kernels.ts")).href);
}

const probeOf = (level: string) => ({ copy: prebuilt(probeLibrary.url, `probe.${level}.so`) });

async function increment(library: LibraryDefinition): Promise<number[]> {
  const x = device.tensor("u32", [2], [1, 2]);
  const out = device.tensor("u32", [2]);
  const encoder = device.encoder();
  const { name, variants, buffers, params, launch } = incrementKernel;
  const args = { variant: "u32", buffers: { x, out }, params: { perGroup: 1, microseconds: 0 }, sizes: { groups: 2 } };
  encoder.dispatch(defineKernel({ library, name, variants, buffers, params, launch }), args);
  await encoder.commit();
  return [...(await out.readNumbers())];
}

describe("a library's binary", () => {
  it("is that of the next lower level where the device's own is missing", async () => {
    const last = levels.at(-1) as string;
    const library = packageWith("lowest", { [`${PLATFORM}/lowest.${last}.so`]: probeOf(last) });
    expect(await increment(library)).toEqual([2, 3]);
  });

  it("is never that of a better level than the device's", () => {
    const library = packageWith("best", { [`${PLATFORM}/best.${levels[0]}.so`]: probeOf(levels[0] as string) });
    if (levels.length === 1) return;
    const low = testDevice({ level: levels.at(-1) as string });
    expect(caught(() => low.library(library)).message).toContain(`there are only ${PLATFORM}/best.${levels[0]}.so`);
  });

  it("that is missing is named with what was looked for and what there is", () => {
    const library = packageWith("elsewhere", {
      "plan9-mips/elsewhere.so": {},
      [`${PLATFORM}/another.so`]: {},
    });
    const paths = levels.map((level) => prebuilt(library.url, `elsewhere.${level}.so`));
    expect(caught(() => device.library(library))).toMatchObject({
      code: "Io",
      message:
        `the library \`elsewhere\` has no kernels for ${PLATFORM}: looked for ${paths.join(", ")}; ` +
        `there are only ${[`${PLATFORM}/another.so`, "plan9-mips/elsewhere.so"].sort().join(", ")} — ` +
        "reinstall the package on this machine, or build it in a clone with `npm run native`",
      details: { paths, operation: "load" },
    });
  });

  it("that a bundler has left out is named as such", () => {
    const library = defineLibrary("bundled", pathToFileURL(join(folder, "app", "dist", "bundle.mjs")).href);
    expect(caught(() => device.library(library)).message).toMatch(
      /; there are no binaries — if your code is bundled, mark the package as external \(esbuild: --external:@mlxts\/\*\)$/,
    );
  });

  it("that the system refuses is named with the system's words", () => {
    const file = `${PLATFORM}/broken.${levels[0]}.so`;
    const library = packageWith("broken", { [file]: { text: "no library" } });
    const { code, message } = caught(() => device.library(library));
    expect(code).toBe("Io");
    expect(message.startsWith("the library `broken` cannot load its kernels ")).toBe(true);
    expect(message).toContain(`${file} on ${PLATFORM}, Node.js ${process.version}: `);
  });
});

it("a binary lies beside the folder of the module", () => {
  expect(prebuilt(import.meta.url, "x.so")).toBe(
    join(dirname(fileURLToPath(import.meta.url)), "..", "prebuilds", PLATFORM, "x.so"),
  );
});
