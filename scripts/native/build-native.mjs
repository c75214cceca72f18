// Builds native code: npm run native -- [--only norms] [--levels all|runnable|best]. Arguments that begin with -D go to
// CMake (e.g. -DMLXTS_SANITIZE=address,undefined).
import { parseArgs } from "node:util";
import { buildNative, LEVELS } from "./native.mjs";

function usage(message) {
  console.error(message);
  process.exit(1);
}

function options() {
  try {
    return parseArgs({
      args: process.argv.slice(2).map((arg) => (arg.startsWith("-D") ? `--define=${arg}` : arg)),
      options: {
        only: { type: "string", multiple: true },
        levels: { type: "string", default: "all" },
        define: { type: "string", multiple: true },
      },
    }).values;
  } catch (error) {
    return usage(error.message);
  }
}

const { only, levels, define } = options();
if (!LEVELS.includes(levels)) usage(`--levels must be one of ${LEVELS.join(", ")}, got ${levels}`);
try {
  buildNative({ packages: only, levels, defines: define });
} catch (error) {
  usage(error.message);
}
