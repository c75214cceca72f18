/** Variables of templates such as `bos_token`. In the file they are texts, or objects with the text as `content`. */
export function specialTokensOf(config: object = {}): Record<string, string> {
  return Object.fromEntries(
    Object.entries(config).flatMap(([name, value]) => {
      if (!name.endsWith("_token")) return [];
      const text = typeof value === "string" ? value : (value as { content?: unknown } | null)?.content;
      return typeof text === "string" ? [[name, text]] : [];
    }),
  );
}
