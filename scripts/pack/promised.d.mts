export function promisedBinaries(root: string): string[];
export function missingBinaries(root: string): string[];
