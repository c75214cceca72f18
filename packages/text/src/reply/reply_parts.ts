/** A part of a reply. Neighboring parts of one kind continue each other; a tool call is one part. */
export type ReplyPart =
  | { type: "reasoning"; text: string }
  | { type: "text"; text: string }
  | {
      type: "toolCall";
      /** Number of the call in the reply, from 0. */
      index: number;
      name: string;
      /** A JSON object as text, which always parses. */
      arguments: string;
    };

/**
 * Collects parts. Of reasoning, line feeds at both ends are left out, as chat templates do when they read it back; white
 * space between the answer's text and tool calls too.
 */
export class PartCollector {
  private parts: ReplyPart[] = [];
  private calls = 0;
  /** White space at the end of the current part, held back until more text comes. */
  private space = "";
  private reasoningBegun = false;
  private skipsLineFeeds = false;

  reasoning(text: string): void {
    const kept = this.reasoningBegun ? text : text.replace(/^\n+/, "");
    if (kept === "") return;
    this.reasoningBegun = true;
    this.add(
      "reasoning",
      kept,
      endOf(kept, (unit) => unit === "\n"),
    );
  }

  endReasoning(): void {
    this.space = "";
    this.skipsLineFeeds = true;
  }

  text(text: string): void {
    const kept = this.skipsLineFeeds ? text.replace(/^\n+/, "") : text;
    if (kept === "") return;
    this.skipsLineFeeds = false;
    this.add(
      "text",
      kept,
      endOf(kept, (unit) => unit.trim() === ""),
    );
  }

  call(name: string, args: string): void {
    this.space = "";
    this.skipsLineFeeds = false;
    this.parts.push({ type: "toolCall", index: this.calls++, name, arguments: args });
  }

  take(): ReplyPart[] {
    const { parts } = this;
    this.parts = [];
    return parts;
  }

  /** `answered`: white space at the end belongs to the answer. */
  end(answered: boolean): void {
    if (answered && this.space !== "") this.append("text", this.space);
    this.space = "";
  }

  private add(type: "text" | "reasoning", text: string, end: number): void {
    if (end === 0) {
      this.space += text;
      return;
    }
    this.append(type, this.space + text.slice(0, end));
    this.space = text.slice(end);
  }

  private append(type: "text" | "reasoning", text: string): void {
    const last = this.parts.at(-1);
    if (last?.type === type) last.text += text;
    else this.parts.push({ type, text });
  }
}

function endOf(text: string, isHeld: (unit: string) => boolean): number {
  let end = text.length;
  while (end > 0 && isHeld(text[end - 1] as string)) end--;
  return end;
}
