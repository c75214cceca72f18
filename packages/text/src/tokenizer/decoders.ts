import { TextMatcher } from "../reply/matcher.ts";
import { BYTE_OF_CHARACTER, utf8Of } from "./byte_level.ts";
import { MAX_CHARACTERS, replaceMatches } from "./normalizers.ts";
import { prependScheme } from "./pre_tokenizers.ts";
import { isObject, type StepFields } from "./step_fields.ts";
import { Utf8Stream } from "./utf8_stream.ts";
import type { Work } from "./work.ts";

/** Takes a part of a token's text; `ends` with its last part, which may be empty. */
type Sink = (text: string, ends: boolean) => void;

/**
 * One step of decoding, which changes tokens while they come: it gives what no later token can change to the next step.
 * Decoding at once and decoding piece by piece is the same code.
 */
interface Step {
  push(text: string, ends: boolean): void;
  /** After the last token. */
  end(): void;
}

/** Makes the step, with the state of one text. */
export type DecoderFactory = (out: Sink, work: Work) => Step;

/** A step that changes each token by itself, when it is there as a whole. */
function wholeTokens(
  change: (token: string, isFirst: boolean, out: Sink, work: Work) => void,
  end?: (out: Sink) => void,
) {
  return (out: Sink, work: Work): Step => {
    let parts: string[] = [];
    let isFirst = true;
    return {
      push(text, ends) {
        if (!ends) {
          parts.push(text);
          return;
        }
        const token = parts.length === 0 ? text : parts.join("") + text;
        parts = [];
        change(token, isFirst, out, work);
        isFirst = false;
      },
      end: () => end?.(out),
    };
  };
}

/** All tokens become one. */
const fuse: DecoderFactory = (out) => ({
  push: (text) => out(text, false),
  end: () => out("", true),
});

/** The bytes that the characters of a token stand for, or undefined if one of them stands for none. */
function bytesOf(token: string): number[] | undefined {
  const bytes: number[] = [];
  for (let at = 0; at < token.length; at++) {
    const byte = BYTE_OF_CHARACTER[token.charCodeAt(at)] ?? -1;
    if (byte < 0) return undefined;
    bytes.push(byte);
  }
  return bytes;
}

const byteLevel: DecoderFactory = (out, work) => {
  const bytes = new Utf8Stream();
  const step = wholeTokens((token) => {
    out(bytes.push(bytesOf(token) ?? utf8Of(token)), false);
  })(out, work);
  step.end = () => out(bytes.end(), true);
  return step;
};

const BYTE_TOKEN = /^<0x([0-9A-Fa-f]{2})>$/;

/** Neighboring tokens `<0x00>` become a text if it is valid UTF-8, else each becomes U+FFFD. */
const byteFallback: DecoderFactory = (out, work) => {
  let bytes: number[] = [];
  const flush = () => {
    if (bytes.length === 0) return;
    try {
      out(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes)), true);
    } catch {
      for (const _ of bytes) out("\ufffd", true);
    }
    bytes = [];
  };
  const step = wholeTokens((token) => {
    const byte = token.length === 6 ? BYTE_TOKEN.exec(token)?.[1] : undefined;
    if (byte !== undefined) {
      bytes.push(Number.parseInt(byte, 16));
      return;
    }
    flush();
    out(token, true);
  })(out, work);
  step.end = flush;
  return step;
};

/** Removes up to `start` times `content` at the beginning of each token, up to `stop` times at its end. */
function strip(content: string, start: number, stop: number): DecoderFactory {
  return (out) => {
    let left = start;
    let held = 0;
    return {
      push(text, ends) {
        let from = 0;
        while (left > 0 && from < text.length) {
          if (!text.startsWith(content, from)) left = 0;
          else {
            from += content.length;
            left--;
          }
        }
        const all = content.repeat(held) + text.slice(from);
        let end = all.length;
        held = 0;
        while (held < stop && end > 0 && all.endsWith(content, end)) {
          end -= content.length;
          held++;
        }
        if (ends) {
          held = 0;
          left = start;
        }
        out(all.slice(0, end), ends);
      },
      end() {},
    };
  };
}

function metaspace(replacement: string, prepends: boolean): DecoderFactory {
  return (out) => {
    let isFirst = true;
    return {
      push(text, ends) {
        out(text.split(replacement).join(isFirst && prepends ? "" : " "), ends);
        if (ends) isFirst = false;
      },
      end() {},
    };
  };
}

/** Puts a text in the place of another in each token; what may be its beginning is held back. */
function replaceText(wanted: string, content: string): DecoderFactory {
  return (out, work) => {
    const matcher = new TextMatcher([wanted]);
    return {
      push(piece, ends) {
        let rest = piece;
        let length = 0;
        const parts: string[] = [];
        while (rest !== "") {
          const { text, found, rest: after } = matcher.push(rest);
          parts.push(text);
          if (found === undefined) break;
          parts.push(content);
          work.spend(content.length);
          length += content.length;
          if (length > MAX_CHARACTERS) throw work.exceeded("makes too long a text");
          rest = after;
        }
        if (ends) parts.push(matcher.end());
        out(parts.join(""), ends);
      },
      end() {},
    };
  };
}

function replace(fields: StepFields): DecoderFactory {
  const pattern = fields.raw("pattern");
  const content = fields.text("content");
  const matcher = fields.matcher("pattern");
  const plain = isObject(pattern) && typeof pattern.String === "string" ? pattern.String : "";
  if (plain !== "") return replaceText(plain, content);
  const change = replaceMatches(matcher, content);
  return wholeTokens((token, _isFirst, out, work) => out(change(token, work), true));
}

const ENGLISH = [
  [" .", "."],
  [" ?", "?"],
  [" !", "!"],
  [" ,", ","],
  [" ' ", "'"],
  [" n't", "n't"],
  [" 'm", "'m"],
  [" do not", " don't"],
  [" 's", "'s"],
  [" 've", "'ve"],
  [" 're", "'re"],
] as const;

const cleanUp = (text: string) => ENGLISH.reduce((result, [from, to]) => result.replaceAll(from, to), text);

function wordPiece(prefix: string, cleans: boolean): DecoderFactory {
  return wholeTokens((token, isFirst, out) => {
    let text = token;
    if (!isFirst) text = token.startsWith(prefix) ? token.slice(prefix.length) : ` ${token}`;
    out(cleans ? cleanUp(text) : text, true);
  });
}

/** The suffix of tokens that end a word becomes a space, at the end of the text nothing. */
function bpe(suffix: string): DecoderFactory {
  return (out, work) => {
    let last: string | undefined;
    const flush = (by: string) => {
      if (last === undefined) return;
      work.spend(last.length);
      out(suffix === "" ? last : last.replaceAll(suffix, by), true);
    };
    const step = wholeTokens((token) => {
      flush(" ");
      last = token;
    })(out, work);
    step.end = () => {
      flush("");
      last = undefined;
    };
    return step;
  };
}

function ctc(pad: string, delimiter: string, cleans: boolean): DecoderFactory {
  return (out, work) => {
    let last: string | undefined;
    return wholeTokens((token) => {
      if (token === last) return;
      last = token;
      let text = pad === "" ? token : token.replaceAll(pad, "");
      if (cleans) text = cleanUp(text).split(delimiter).join(" ");
      if (text !== "") out(text, true);
    })(out, work);
  };
}

/** Without a decoder there is a space between tokens. */
const spaced: DecoderFactory = wholeTokens((token, isFirst, out) => out(isFirst ? token : ` ${token}`, true));

function read(fields: StepFields): DecoderFactory[] {
  switch (fields.type) {
    case "Sequence":
      return fields.steplist("decoders").flatMap(read);
    case "ByteLevel":
      return [byteLevel];
    case "ByteFallback":
      return [byteFallback];
    case "Fuse":
      return [fuse];
    case "Strip":
      return [strip(fields.character("content"), fields.count("start", 0, 0), fields.count("stop", 0, 0))];
    case "Metaspace":
      return [metaspace(fields.character("replacement"), prependScheme(fields) !== "never")];
    case "Replace":
      return [replace(fields)];
    case "WordPiece":
      return [wordPiece(fields.text("prefix", "##"), fields.boolean("cleanup", true))];
    case "BPEDecoder":
      return [bpe(fields.text("suffix", "</w>"))];
    case "CTC":
      return [
        ctc(
          fields.text("pad_token", "<pad>"),
          fields.text("word_delimiter_token", "|"),
          fields.boolean("cleanup", true),
        ),
      ];
    default:
      throw fields.unsupported();
  }
}

export function readDecoder(fields: StepFields | undefined): DecoderFactory[] {
  return fields === undefined ? [spaced] : read(fields);
}

/** Decodes the tokens of one text. */
export class TokenDecoder {
  private parts: string[] = [];
  private characters = 0;
  private readonly steps: readonly Step[];
  private readonly work: Work;

  constructor(factories: readonly DecoderFactory[], work: Work) {
    this.work = work;
    let out: Sink = (text) => {
      this.parts.push(text);
      this.characters += text.length;
      work.spend(text.length / 16);
      if (this.characters > 4 * MAX_CHARACTERS) throw work.exceeded("makes too long a text");
    };
    const steps: Step[] = [];
    for (const factory of [...factories].reverse()) {
      const step = factory(out, work);
      steps.unshift(step);
      out = (text, ends) => step.push(text, ends);
    }
    this.steps = steps;
  }

  /** Adds a token. */
  push(token: string): void {
    this.work.spend(1 + token.length / 4);
    this.steps[0]?.push(token, true);
  }

  /** After the last token. */
  end(): void {
    for (const step of this.steps) step.end();
  }

  /** The text since the last call. */
  take(): string {
    const text = this.parts.length === 1 ? (this.parts[0] as string) : this.parts.join("");
    this.parts = [];
    this.characters = 0;
    return text;
  }
}
