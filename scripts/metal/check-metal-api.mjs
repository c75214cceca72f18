// Prints where our declarations of Foundation and Metal differ from published ones.
import { join } from "node:path";
import { buildTool } from "../native/build_tools.mjs";
import { framework } from "../native/clang.mjs";
import "@mlxts/test-kit/source_hooks";

const { checkMetalApi } = await import("./metal_api.ts");
const { compared, differences } = checkMetalApi(join(framework, "include"), buildTool("@nativescript/macos-node-api"));
console.log([...differences, `${compared} compared, ${differences.length} differ`].join("\n"));
process.exitCode = differences.length === 0 ? 0 : 1;
