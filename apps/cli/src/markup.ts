const NAMES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/** Text as it stands in HTML and SVG, also inside attributes. */
export const escaped = (text: string) => text.replace(/[&<>"']/g, (sign) => NAMES[sign] as string);

/** An HTML table; the first cell of a line names it. */
export function tableMarkup(head: readonly string[], lines: readonly (readonly string[])[]): string {
  const cells = (tag: string, texts: readonly string[]) =>
    texts.map((text) => `<${tag}>${escaped(text)}</${tag}>`).join("");
  const body = lines.map((line) => `<tr>${cells("td", line)}</tr>`).join("\n");
  return `<div class="scroll"><table><thead><tr>${cells("th", head)}</tr></thead><tbody>\n${body}\n</tbody></table></div>`;
}
