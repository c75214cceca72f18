import { wrongKind, wrongValue } from "@mlxts/common/errors";
import { checkOptionNames } from "@mlxts/common/options";
import { TextMatcher } from "./matcher.ts";
import { PartCollector, type ReplyPart } from "./reply_parts.ts";
import { StopTexts } from "./stop_texts.ts";
import { type CallReader, FORMATS, type ToolFormat } from "./tool_formats.ts";
import { type Tool, type ToolSchemas, toolSchemas } from "./tools.ts";

const OPEN = "<think>";
const CLOSE = "</think>";
/** So much white space may come before `<think>`. */
const MAX_SPACE = 256;

export interface ReplyOptions {
  /** The tools that may be called. A call of another tool is text. Default: none. */
  tools?: readonly Tool[];
  /** How calls are written: see `toolFormatOf`. Default: calls are text. */
  toolFormat?: ToolFormat | undefined;
  /** Whether the prompt ended inside `<think>`: see `opensReasoning`. Default false. */
  inReasoning?: boolean;
  /** Texts that end the reply, reasoning and calls included. */
  stop?: readonly string[];
}

/** Whether a prompt ends inside a block of reasoning, because its chat template opened one. */
export function opensReasoning(prompt: string): boolean {
  return prompt.trimEnd().endsWith(OPEN);
}

/**
 * Takes a reply apart while it comes: reasoning, the answer's text, and tool calls. The parts do not depend on how the
 * reply is cut into pieces. Whatever may be the beginning of a tag or a stop text is held back until it is known.
 *
 * Reasoning is what stands between `<think>` at the beginning, or in the prompt, and `</think>`; with tools a tool call
 * ends it too. A call is given when it is complete, well formed and of a tool that was given; everything else belongs to the
 * reasoning or text around it.
 *
 * ```ts
 * const parser = new ReplyParser({ tools, toolFormat: toolFormatOf(template), inReasoning: opensReasoning(prompt) });
 * for await (const piece of pieces) for (const part of parser.push(piece)) show(part);
 * for (const part of parser.end()) show(part);
 * ```
 */
export class ReplyParser {
  private readonly parts = new PartCollector();
  private readonly stops: StopTexts;
  private readonly tools: ToolSchemas;
  private readonly format: (typeof FORMATS)[ToolFormat] | undefined;
  private readonly inReasoning: TextMatcher;
  private readonly inAnswer: TextMatcher;
  private state: "start" | "reasoning" | "answer" | "section" | "call" | "afterCall";
  /** What was read of a call, or at the beginning, and is text if it comes to nothing. */
  private raw = "";
  private reader: CallReader | undefined;
  /** What the call or list of calls stands in. */
  private around: "reasoning" | "answer" = "answer";

  constructor(options: ReplyOptions = {}) {
    const op = "ReplyParser";
    checkOptionNames<ReplyOptions>(op, options, { tools: true, toolFormat: true, inReasoning: true, stop: true });
    const { tools = [], toolFormat, inReasoning = false, stop = [] } = options;
    if (typeof inReasoning !== "boolean") throw wrongKind(op, "inReasoning", "be true or false", inReasoning);
    if (toolFormat !== undefined && !Object.hasOwn(FORMATS, toolFormat))
      throw wrongValue(op, "toolFormat", `be one of ${Object.keys(FORMATS).join(", ")}`, toolFormat);
    this.stops = new StopTexts(stop);
    this.tools = toolSchemas(op, tools);
    this.format = this.tools.size > 0 && toolFormat !== undefined ? FORMATS[toolFormat] : undefined;
    const { begin, section = [] } = this.format ?? {};
    const tags = begin === undefined ? [] : [begin, ...section];
    this.inReasoning = new TextMatcher([CLOSE, ...tags]);
    this.inAnswer = new TextMatcher(tags);
    this.state = inReasoning ? "reasoning" : "start";
  }

  /** The stop text that ended the reply. */
  get stopped(): string | undefined {
    return this.stops.found;
  }

  /** Adds a piece, of one token or many. Returns the parts that are known now. */
  push(piece: string): ReplyPart[] {
    this.read(this.stops.push(piece));
    return this.parts.take();
  }

  /** The reply has ended: returns what was held back. */
  end(): ReplyPart[] {
    this.read(this.stops.end());
    const held = this.raw + this.inReasoning.end() + this.inAnswer.end();
    this.raw = "";
    const reasons = this.around === "reasoning" && (this.state === "call" || this.state === "section");
    const inReasoning = this.state === "reasoning" || reasons;
    if (inReasoning) this.parts.reasoning(held);
    else if (held.trim() !== "" || this.state === "start") this.parts.text(held);
    this.parts.end(!inReasoning && (this.state !== "afterCall" || held.trim() !== ""));
    this.state = "answer";
    return this.parts.take();
  }

  private read(text: string): void {
    let rest = text;
    while (rest !== "") rest = this.step(rest);
  }

  /** Reads some of a text, which is not empty. Returns what is left. */
  private step(text: string): string {
    switch (this.state) {
      case "start":
        return this.start(text);
      case "reasoning":
        return this.reasoning(text);
      case "answer":
        return this.answer(text);
      case "section":
      case "afterCall":
        return this.betweenCalls(text);
      case "call":
        return this.call(text);
    }
  }

  private start(text: string): string {
    const head = this.raw + text;
    const tag = head.trimStart();
    this.raw = "";
    if (tag.startsWith(OPEN)) {
      this.state = "reasoning";
      return tag.slice(OPEN.length);
    }
    if (OPEN.startsWith(tag) && head.length - tag.length <= MAX_SPACE) {
      this.raw = head;
      return "";
    }
    this.state = "answer";
    return head;
  }

  private reasoning(text: string): string {
    const { text: before, found, rest } = this.inReasoning.push(text);
    this.parts.reasoning(before);
    if (found === undefined) return "";
    if (found !== CLOSE) return this.tag(found, rest, "reasoning");
    this.parts.endReasoning();
    this.state = "answer";
    return rest;
  }

  private answer(text: string): string {
    const { text: before, found, rest } = this.inAnswer.push(text);
    this.parts.text(before);
    return found === undefined ? "" : this.tag(found, rest, "answer");
  }

  /** Where no call comes of what was read: it belongs to what is around it. */
  private noCall(read: string): void {
    if (this.around === "reasoning") this.parts.reasoning(read);
    else this.parts.text(read);
    this.state = this.around;
  }

  /** After a tag of the format. */
  private tag(found: string, rest: string, around: "reasoning" | "answer"): string {
    this.around = around;
    const { begin, section } = this.format as NonNullable<typeof this.format>;
    if (found === begin) this.beginCall(found);
    else if (found === section?.[0]) {
      this.state = "section";
      this.raw = found;
    } else this.noCall(found);
    return rest;
  }

  private beginCall(raw: string): void {
    this.state = "call";
    this.raw = raw;
    this.reader = this.format?.read(this.tools);
    this.reader?.next();
  }

  /** In a list of calls: white space, then another call or the end of the list. */
  private betweenCalls(text: string): string {
    const { begin = "", section } = this.format ?? {};
    const next = section === undefined ? [begin] : this.state === "section" ? [begin] : [begin, section[1]];
    const opened = this.state === "section" ? (section?.[0] ?? "") : "";
    const head = this.raw.slice(opened.length) + text;
    const tag = head.trimStart();
    const space = head.length - tag.length;
    const found = next.find((candidate) => tag.startsWith(candidate));
    this.raw = "";
    if (found !== undefined) {
      if (found === begin) this.beginCall(opened + head.slice(0, space) + found);
      else this.state = "answer";
      return tag.slice(found.length);
    }
    if (space <= MAX_SPACE && next.some((candidate) => candidate.startsWith(tag))) {
      this.raw = opened + head;
      return "";
    }
    this.noCall(opened);
    return head;
  }

  private call(text: string): string {
    for (let at = 0; at < text.length; at++) {
      const { done, value } = (this.reader as CallReader).next(text[at] as string);
      if (!done) continue;
      const read = this.raw + text.slice(0, value ? at + 1 : at);
      this.raw = "";
      if (value) {
        if (this.around === "reasoning") this.parts.endReasoning();
        this.around = "answer";
        this.parts.call(value.name, value.arguments);
        this.state = "afterCall";
        return text.slice(at + 1);
      }
      // What was read last may be the beginning of the next tag.
      const again = read.lastIndexOf("<");
      const kept = again > 0 && read.length - again < MAX_SPACE ? again : read.length;
      this.noCall(read.slice(0, kept));
      return read.slice(kept) + text.slice(at);
    }
    this.raw += text;
    return "";
  }
}
