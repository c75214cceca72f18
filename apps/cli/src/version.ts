import { readFileSync } from "node:fs";

/** The version of this package; the file lies in the same place from `src/` and from `dist/`. */
export const ownVersion = (): string =>
  JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")).version;
