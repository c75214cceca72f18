import { wrongKind, wrongValue } from "./errors.ts";
import { isOurs, registerKind } from "./identity.ts";

/** A package's compiled kernels: where they lie. */
export interface LibraryDefinition {
  readonly name: string;
  /** The package's `prebuilds/` and `native/` folders stand beside the folder of this module. */
  readonly url: string;
}

/** Names a package's kernel library; `url` is the `import.meta.url` of a module in its `src/` or `dist/`. */
export function defineLibrary(name: string, url: string): LibraryDefinition {
  const op = "defineLibrary";
  if (typeof name !== "string") throw wrongKind(op, "name", "be a string", name);
  if (!/^[A-Za-z0-9_-]+$/.test(name)) throw wrongValue(op, "name", "be of letters, digits, - and _", name);
  if (typeof url !== "string" || !url.startsWith("file:") || !URL.canParse(url)) {
    const error = typeof url === "string" ? wrongValue : wrongKind;
    throw error(op, "url", "be the import.meta.url of a module", url, "bundlers must leave this package external");
  }
  const definition = Object.freeze({ name, url });
  definitions.add(definition);
  return definition;
}

const definitions = new WeakSet<object>();
registerKind("LibraryDefinition", (value) => definitions.has(value));

/** Refuses what no `defineLibrary` has made. */
export function checkLibrary(op: string, value: unknown): asserts value is LibraryDefinition {
  if (!isOurs("LibraryDefinition", value)) throw wrongKind(op, "library", "be made by defineLibrary", value);
}
