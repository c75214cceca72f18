export function unoptimized(): boolean;
export function onlyBestOptimized(): boolean;
