/** A package.json of this repository, and its folder, e.g. `packages/norms`. */
export interface Package {
  readonly folder: string;
  readonly name: string;
  readonly scripts: Readonly<Record<string, string>>;
}
export function workspace(): Package[];
/** The names in packages/ of those packages and all that they run on, as far as they have native code. */
export function nativePackages(...folders: string[]): string[];
