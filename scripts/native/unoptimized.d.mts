export function unoptimized(): boolean;
