/** The module that lets a process of Node.js import the packages' sources: `node --import SOURCE_HOOKS file.ts`. */
export const SOURCE_HOOKS = new URL("source_hooks.mjs", import.meta.url).href;
