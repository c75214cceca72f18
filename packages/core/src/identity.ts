// Which objects this package has made. A process may hold the package twice: as ESM beside CommonJS, or in two folders.
// Copies whose versions work together take each other's objects; others are named by version and folder in errors.
import { fileURLToPath } from "node:url";
import { types } from "node:util";
import { describeObjectsBy } from "@mlxts/common/errors";
import { version } from "../package.json";

export { printAsJson } from "@mlxts/common/errors";

interface Copy {
  readonly version: string;
  /** Versions that work together: below 1.0 those of one minor version, then those of one major version. */
  readonly series: string;
  /** The folder of the package. */
  readonly path: string;
  /** Whether a value is an object of that kind that this copy has made. */
  holds(kind: string, value: object): boolean;
}

const PLACE = Symbol.for("@mlxts/core");
const KINDS = new Map<string, (value: object) => boolean>();
const OWN: Copy = Object.freeze({
  version,
  series: /^(0\.\d+|\d+)/.exec(version)?.[0] ?? version,
  path: fileURLToPath(new URL("..", import.meta.url)).replace(/[/\\]$/, ""),
  holds: (kind: string, value: object) => KINDS.get(kind)?.(value) ?? false,
});
const shared = globalThis as { [PLACE]?: Copy[] };
if (!shared[PLACE]) Object.defineProperty(shared, PLACE, { value: [] });
const copies = shared[PLACE] as Copy[];
copies.push(OWN);

/** Whether a value is an object of that kind, made by this copy or by one that works together with it. */
export function isOurs(kind: string, value: unknown): boolean {
  if (value === null || typeof value !== "object") return false;
  return copies.some((copy) => copy.series === OWN.series && copy.holds(kind, value));
}

/** For an object of a copy that does not work together with this one: its kind, the version and folder of that copy, and the remedy. */
function foreign(value: object): { name: string; remedy: string } | undefined {
  if (types.isProxy(value)) return undefined;
  for (const copy of copies)
    if (copy.series !== OWN.series)
      for (const kind of KINDS.keys())
        if (copy.holds(kind, value))
          return { name: `a ${kind} of @mlxts/core ${copy.version} in ${copy.path}`, remedy: ONE_COPY };
  return undefined;
}

describeObjectsBy({ isProxy: types.isProxy, foreign });

/** The remedy for objects of a copy that does not work together with this one. */
const ONE_COPY = `@mlxts/core ${version} in ${OWN.path} checks this call: let both use one version (\`npm ls @mlxts/core\` shows who brings which)`;

/** Makes a kind of object known to other copies; `holds` tells which objects this copy has made. */
export function registerKind(kind: string, holds: (value: object) => boolean): void {
  KINDS.set(kind, holds);
}

type Class<T> = { readonly prototype: T };

/**
 * Gives a class its identity: `instanceof` knows the objects of other copies too, and messages have the same name for it
 * after a bundler has renamed it. `holds` tells which objects the class itself has made.
 */
export function identify<T extends object>(
  name: string,
  type: Class<T>,
  holds: (value: object) => boolean = (value) => Function.prototype[Symbol.hasInstance].call(type, value),
): void {
  registerKind(name, holds);
  Object.defineProperty(type, "name", { value: name });
  Object.defineProperty(type, Symbol.hasInstance, {
    value(this: unknown, value: unknown): boolean {
      if (this !== type) return Function.prototype[Symbol.hasInstance].call(this, value);
      return value !== null && typeof value === "object" && (holds(value) || isOurs(name, value));
    },
  });
}
