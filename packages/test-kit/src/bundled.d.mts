/** @see bundled.mjs */
export function bundled(main: string, options?: { packages?: boolean }): Promise<string>;
