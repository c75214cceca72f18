// Installs the other versions of Node.js that the packages are tested on, into build/.
import { installNodes } from "../native/build_tools.mjs";

for (const path of installNodes()) console.log(path);
