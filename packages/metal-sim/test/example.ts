import { fileURLToPath } from "node:url";

export const example = (name: string) => fileURLToPath(new URL(`../examples/${name}`, import.meta.url));
