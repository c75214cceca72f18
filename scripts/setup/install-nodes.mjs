// Installs the other versions of Node.js, Deno and Bun, on which packages are tested, into build/.
import { installNodes, installRuntimes } from "../native/build_tools.mjs";

for (const path of [...installNodes(), ...installRuntimes()]) console.log(path);
