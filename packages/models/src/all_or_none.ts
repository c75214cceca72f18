/** Makes one object for each entry. When one cannot be made, those made before it are disposed. */
export function allOrNone<T, R extends { dispose(): void }>(entries: Iterable<T>, make: (entry: T) => R): R[] {
  const made: R[] = [];
  try {
    for (const entry of entries) made.push(make(entry));
  } catch (error) {
    for (const each of made) each.dispose();
    throw error;
  }
  return made;
}
