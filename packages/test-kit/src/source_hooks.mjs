// Lets this process import the packages' TypeScript sources: JavaScript is made of them (source_loader.mjs), and the
// `exports` of packages have the condition `mlxts-source`, which a running process can only set through a resolve hook.
import { register } from "node:module";

process.setSourceMapsEnabled(true);
register("./source_loader.mjs", import.meta.url);
