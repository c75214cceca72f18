import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const packages = fileURLToPath(new URL("../../packages", import.meta.url));
const images = readdirSync(packages).flatMap((name) => {
  const folder = join(packages, name, "prebuilds", "darwin-arm64");
  return existsSync(folder) ? readdirSync(folder).map((file) => join(folder, file)) : [];
});

/** What the load commands of a Mach-O image say. */
function readImage(path: string) {
  const bytes = readFileSync(path);
  const text = (at: number) => bytes.toString("latin1", at, bytes.indexOf(0, at));
  const libraries: string[] = [];
  let minimum = "";
  let signed = false;
  let at = 32;
  for (let i = 0; i < bytes.readUInt32LE(16); i++) {
    const command = bytes.readUInt32LE(at);
    if (command === 0xc) libraries.push(text(at + bytes.readUInt32LE(at + 8)));
    if (command === 0x32) minimum = `${bytes.readUInt16LE(at + 14)}.${bytes.readUInt8(at + 13)}`;
    if (command === 0x1d) signed = true;
    at += bytes.readUInt32LE(at + 4);
  }
  return {
    magic: bytes.readUInt32LE(0),
    processor: bytes.readUInt32LE(4),
    kind: { 6: "dylib", 8: "bundle" }[bytes.readUInt32LE(12)],
    libraries,
    minimum,
    signed,
  };
}

describe.skipIf(images.length === 0)(
  `binaries for macOS${images.length === 0 ? " (skipped: not built, run `npm run darwin`)" : ""}`,
  () => {
    it.each(images.map((path) => [path.slice(packages.length + 1), path]))("%s", (name, path) => {
      const image = readImage(path);
      expect(image).toMatchObject({
        magic: 0xfeedfacf,
        processor: 0x100000c,
        kind: name.endsWith(".node") ? "bundle" : "dylib",
        minimum: "14.0",
        signed: true,
      });
      expect(image.libraries).toContain("/usr/lib/libSystem.B.dylib");
      const framework = (of: string) => image.libraries.some((library) => library.includes(`/${of}.framework/`));
      for (const of of ["Metal", "Foundation", "CoreGraphics"]) expect(framework(of), of).toBe(name.endsWith(".node"));
      // Nothing but what every macOS has.
      for (const library of image.libraries) expect(library).toMatch(/^\/(usr\/lib|System\/Library\/Frameworks)\//);
    });
  },
);
