import { MlxtsError } from "@mlxts/common/errors";
import { type AddedToken, AddedTokens, isControlToken, readAddedTokens } from "./added_tokens.ts";
import { WHITESPACE_AT_START } from "./characters.ts";
import { type DecoderFactory, readDecoder, TokenDecoder } from "./decoders.ts";
import type { Model } from "./models/model.ts";
import { readModel } from "./models/read.ts";
import { type Normalizer, readNormalizer, stripsLeft } from "./normalizers.ts";
import { type PostProcessor, readPostProcessor } from "./post_processors.ts";
import { lastByteLevel, type PreTokenizer, readPreTokenizer } from "./pre_tokenizers.ts";
import { isObject, type Json, type Refuse, StepCount, StepFields } from "./step_fields.ts";
import { readModelVocabulary, Vocabulary } from "./vocabulary.ts";
import { Work } from "./work.ts";

export interface EncodeSettings {
  /** Whether the special tokens of the file are added at the beginning and end. */
  adds: boolean;
  /** Whether the text of a control token becomes that token. */
  parses: boolean;
  /** A character that keeps the text around it from being an added token, and is then left out. */
  mark?: string | undefined;
}

/** Calls `make` when its result is first needed. */
function once<T>(make: () => T): () => T {
  let made: { value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

/** Longer texts are split, and longer pieces encoded, in slices: an asynchronous call may pause between them. */
const LONG_TEXT = 1 << 12;

/** The added tokens that control the model: all of them, and those that are found in normalized text as they are there. */
export interface ControlTokens {
  readonly contents: readonly string[];
  readonly normalized: readonly string[];
}

/** What a `tokenizer.json` says: texts become ids, ids become texts. */
export class TokenizerEngine {
  private readonly addedTokens: readonly AddedToken[];
  /** Found when they are first needed: it takes a search of all chat templates for each token. */
  readonly controlTokens: () => ControlTokens;
  private readonly path: string;
  private readonly longText: number;
  private readonly vocabulary: Vocabulary;
  private readonly normalizer: Normalizer;
  private readonly stripsLeft: boolean;
  private readonly preTokenizer: PreTokenizer | undefined;
  private readonly model: Model;
  private readonly postProcessor: PostProcessor | undefined;
  private readonly decoder: readonly DecoderFactory[];
  private readonly specialIds = new Set<number>();
  private readonly all: AddedTokens;
  /** Those of the added tokens that are pieces of text. */
  private readonly textTokens: () => AddedTokens;

  /**
   * @param templates sources of the checkpoint's chat templates
   * @param longText longer texts are encoded in slices
   * @throws MlxtsError `Io` that names the part of the file that is malformed or not supported
   */
  constructor(path: string, json: Json, templates: readonly string[], maxSteps: number, longText = LONG_TEXT) {
    this.path = path;
    this.longText = longText;
    const refuse: Refuse = (part, rule) =>
      new MlxtsError("Io", `${path}: \`${part}\` must ${rule}`, { path, operation: "parse" });
    if (!isObject(json.model)) throw refuse("model", "be an object");
    const steps = new StepCount();
    const fieldsOf = (name: string) => {
      const step = json[name];
      return step === null || step === undefined ? undefined : new StepFields(name, step, refuse, steps);
    };
    const normalizer = fieldsOf("normalizer");
    this.normalizer = normalizer ? readNormalizer(normalizer) : (text) => text;
    this.stripsLeft = stripsLeft(json.normalizer);
    const preTokenizer = fieldsOf("pre_tokenizer");
    this.preTokenizer = preTokenizer && readPreTokenizer(preTokenizer);
    const postProcessor = fieldsOf("post_processor");
    this.postProcessor = postProcessor && readPostProcessor(postProcessor);
    this.decoder = readDecoder(fieldsOf("decoder"));

    this.vocabulary = new Vocabulary(refuse);
    const scores = readModelVocabulary(json.model, this.vocabulary, refuse);
    const byteLevel = lastByteLevel(this.preTokenizer);
    const isBpe = "merges" in json.model;
    if (byteLevel && isBpe) byteLevel.leavesText = true;
    const takesBytes = byteLevel?.leavesText === true;
    this.model = readModel({ path, json: json.model, vocabulary: this.vocabulary, scores, refuse, takesBytes });

    const added = readAddedTokens(json.added_tokens, refuse);
    this.addedTokens = added;
    for (const { content, id, special } of added) {
      this.vocabulary.addAdded(content, id);
      if (special) this.specialIds.add(id);
    }
    const work = () => new Work(path, "opening it", maxSteps);
    const tokensOf = (tokens: readonly AddedToken[]) => new AddedTokens(tokens, this.normalizer, work());
    this.all = tokensOf(added);
    const controls = once(() => new Set(added.filter((token) => isControlToken(token, templates))));
    this.textTokens = once(() => tokensOf(added.filter((token) => !controls().has(token))));
    this.controlTokens = once(() => {
      const tokens = [...controls()];
      const normalized = tokens.filter((token) => token.normalized);
      return {
        contents: tokens.map(({ content }) => content),
        normalized: normalized.map(({ content }) => this.normalizer(content, work())).filter((text) => text !== ""),
      };
    });
  }

  /** A text as the normalizer changes it. */
  normalize(text: string, work: Work): string {
    return this.normalizer(text, work);
  }

  /** Encodes a text and pauses again and again: see `encode`. */
  *encodeInSlices(given: string, settings: EncodeSettings, work: Work): Generator<void, number[]> {
    const ids: number[] = [];
    const text = given.isWellFormed() ? given : given.toWellFormed();
    const added = settings.parses ? this.all : this.textTokens();
    const { mark } = settings;
    const marks = mark === undefined ? [] : [mark, this.normalizer(mark, work)].filter((each) => each !== "");
    for (const outer of added.plain.segments(text, work)) {
      if (outer.id !== -1) {
        ids.push(outer.id);
        continue;
      }
      const normalized = this.normalizer(text.slice(outer.start, outer.end), work);
      for (const inner of added.normalized.segments(normalized, work)) {
        if (inner.id !== -1) {
          ids.push(inner.id);
          continue;
        }
        let part = normalized.slice(inner.start, inner.end);
        for (const each of marks) part = part.replaceAll(each, "");
        if (part === "") continue;
        const startsText = outer.start === 0 && inner.start === 0 && !this.stripsStart(text);
        yield* this.encodePart(part, startsText, ids, work);
      }
      yield;
    }
    return this.postProcessor ? this.postProcessor(ids, settings.adds, work) : ids;
  }

  private *encodePart(part: string, startsText: boolean, ids: number[], work: Work): Generator<void> {
    const { preTokenizer, model } = this;
    let slices: Iterable<string[]> = [[part]];
    if (preTokenizer && part.length > this.longText) slices = preTokenizer.slices(part, startsText, work);
    else if (preTokenizer) {
      const pieces: string[] = [];
      preTokenizer.split(part, startsText, pieces, work);
      slices = [pieces];
    }
    for (const pieces of slices) {
      for (const piece of pieces)
        if (piece.length > this.longText && model.encodeInSlices) yield* model.encodeInSlices(piece, ids, work);
        else model.encode(piece, ids, work);
      yield;
    }
  }

  /** Whether the normalizer removes white space at the beginning: what follows does not begin the text then. */
  private stripsStart(text: string): boolean {
    return this.stripsLeft && WHITESPACE_AT_START.test(text);
  }

  encode(text: string, settings: EncodeSettings, work: Work): number[] {
    const slices = this.encodeInSlices(text, settings, work);
    for (;;) {
      const { done, value } = slices.next();
      if (done) return value;
    }
  }

  /** Decodes the tokens of one text while they come. */
  decoderOf(work: Work): TokenDecoder {
    return new TokenDecoder(this.decoder, work);
  }

  token(id: number): string | undefined {
    return this.vocabulary.token(id);
  }

  /** The id of a token, added or of the model. */
  idOf(token: string): number | undefined {
    return this.addedTokens.find(({ content }) => content === token)?.id ?? this.vocabulary.ids.get(token);
  }

  isSpecial(id: number): boolean {
    return this.specialIds.has(id);
  }

  workFor(what: string, steps: number): Work {
    return new Work(this.path, what, steps);
  }
}
