/** Programs of other versions of Node.js, as far as they are installed. */
export function installedNodes(): string[];

/** Deno and Bun; `program` is undefined where `npm run nodes` has not installed one. */
export function runtimes(): { name: string; program: string | undefined }[];
