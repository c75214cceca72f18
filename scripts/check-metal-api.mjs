// Prints where our declarations of Foundation and Metal differ from published ones.
import { join } from "node:path";
import { framework } from "./clang.mjs";
import { macTool } from "./mac_tools.mjs";
import "./source-hooks.mjs";

const { checkMetalApi } = await import("./metal_api.ts");
const { compared, differences } = checkMetalApi(join(framework, "include"), macTool("@nativescript/macos-node-api"));
console.log([...differences, `${compared} compared, ${differences.length} differ`].join("\n"));
process.exitCode = differences.length === 0 ? 0 : 1;
