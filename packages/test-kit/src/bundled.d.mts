interface Options {
  packages?: boolean;
}
/** @see bundled.mjs */
export function bundled(main: string, options?: Options): Promise<string>;
/** @see bundled.mjs */
export function importBundled(main: string, options?: Options): Promise<object>;
