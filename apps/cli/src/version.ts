import { readFileSync } from "node:fs";

/** The version of this package. Its package.json is one directory above `src/` and above `dist/`. */
export const ownVersion = (): string =>
  JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")).version;
