// Lets this process import the packages' TypeScript sources: tsx for the syntax, and the `mlxts-source` condition of
// their `exports`, which a running process can only set through a resolve hook.
import { register } from "node:module";
import { register as registerTsx } from "tsx/esm/api";

registerTsx();
register(
  `data:text/javascript,${encodeURIComponent(
    'export const resolve = (specifier, context, next) => next(specifier, { ...context, conditions: [...context.conditions, "mlxts-source"] });',
  )}`,
);
