/** Programs of other versions of Node.js, as far as they are installed. */
export function installedNodes(): string[];
