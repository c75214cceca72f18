/** The method that `console.log` calls. */
export const inspectCustom: unique symbol = Symbol.for("nodejs.util.inspect.custom") as never;

export type Inspect = (value: unknown, options: unknown) => string;

/** How `console.log` shows an object: its class's name and what counts of it. */
export const inspectAs = (name: string, fields: object, options: unknown, inspect: Inspect): string =>
  `${name} ${inspect(fields, options)}`;
