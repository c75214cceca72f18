import { wrongValue } from "@mlxts/core";

/** The command line is wrong. Exit code 2. */
export class UsageError extends Error {
  constructor(command: string, argument: string, rule: string, value: string, remedy?: string) {
    super(inLine(wrongValue(command, argument, rule, quoted(value), remedy).message));
  }
}

/** A command has failed and has printed why. */
export class Reported extends Error {}

/** A text from elsewhere as part of a message: on one line, with control characters escaped. */
export function inLine(text: string): string {
  return text.replace(/[\p{Cc}\u2028\u2029]/gu, (c) =>
    c === "\n" ? " " : `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Longer values are cut in messages. */
const MAX_QUOTED = 120;

/** A value of the command line in a message. */
function quoted(value: string): string {
  if (value.trim() === "") return JSON.stringify(value);
  return value.length > MAX_QUOTED ? `${value.slice(0, MAX_QUOTED)}…` : value;
}

/** A text given for an option breaks the option's rule. */
export class BadValue extends Error {
  readonly rule: string;
  readonly value: string;

  constructor(rule: string, value: string) {
    super(rule);
    this.rule = rule;
    this.value = value;
  }
}

/** An option of a command: what help says of it, and how its texts are read. */
export interface Option<T> {
  /** The name of its value in help. A flag has none. */
  readonly placeholder?: string;
  readonly doc: string;
  /** Whether it may be given several times. */
  readonly multiple?: boolean;
  /** For an option that takes several values after its name: whether one more text belongs to it. */
  readonly takes?: (text: string) => boolean;
  /** The values that it takes, where these are few: shells complete them. */
  readonly values?: () => readonly string[];
  /** Its value, from all texts given for it; the default when there are none. Throws `BadValue`. */
  read(texts: readonly string[]): T;
}

const last = (texts: readonly string[]) => texts.at(-1);

const defaulted = (doc: string, value: unknown) => (value === undefined ? doc : `${doc} (default ${value})`);

export const flag = (doc: string): Option<boolean> => ({ doc, read: (texts) => texts.length > 0 });

export const text = (placeholder: string, doc: string): Option<string | undefined> => ({
  placeholder,
  doc,
  read: (texts) => {
    if (last(texts) === "") throw new BadValue("not be empty", "");
    return last(texts);
  },
});

export const path = (placeholder: string, doc: string): Option<string | undefined> => ({
  placeholder,
  doc,
  read: (texts) => {
    const given = last(texts);
    if (given?.trim() === "") throw new BadValue("be a path", given);
    return given;
  },
});

/** `above`: `min` itself is not in the range. */
interface Range<D> {
  min: number;
  max?: number;
  above?: true;
  default?: D;
}

function numeric<D extends number | undefined>(
  placeholder: string,
  doc: string,
  kind: "an integer" | "a number",
  { min, max, above, default: value }: Range<D>,
): Option<number | D> {
  const least = above ? `> ${min}` : `≥ ${min}`;
  const range = max === undefined ? least : above ? `${least} and ≤ ${max}` : `from ${min} to ${max}`;
  return {
    placeholder,
    doc: defaulted(`${doc}; ${kind} ${range}`, value),
    read: (texts) => {
      const given = last(texts);
      if (given === undefined) return value as D;
      const parsed = given.trim() === "" ? Number.NaN : Number(given);
      const right = kind === "an integer" ? Number.isSafeInteger(parsed) : Number.isFinite(parsed);
      if (!right || parsed < min || (above && parsed === min) || parsed > (max ?? parsed))
        throw new BadValue(`be ${kind} ${range}`, given);
      return parsed;
    },
  };
}

export const integer = <D extends number | undefined = undefined>(placeholder: string, doc: string, range: Range<D>) =>
  numeric(placeholder, doc, "an integer", range);

export const number = <D extends number | undefined = undefined>(placeholder: string, doc: string, range: Range<D>) =>
  numeric(placeholder, doc, "a number", range);

export function choice<const V extends string | number, const D extends V | undefined = undefined>(
  placeholder: string,
  doc: string,
  values: readonly V[],
  value?: D,
): Option<V | D> {
  return {
    placeholder,
    doc: defaulted(`${doc}; ${values.join(", ")}`, value),
    values: () => values.map(String),
    read: (texts) => {
      const given = last(texts);
      if (given === undefined) return value as D;
      const found = values.find((each) => String(each) === given);
      if (found === undefined) throw new BadValue(`be one of ${values.join(", ")}`, given);
      return found;
    },
  };
}

/** Token ids, separated by commas. */
export const tokenIds = (doc: string): Option<number[] | undefined> => ({
  placeholder: "<ids>",
  doc,
  read: (texts) =>
    last(texts)
      ?.split(",")
      .map((part) => {
        const id = part.trim() === "" ? Number.NaN : Number(part);
        if (!Number.isSafeInteger(id)) throw new BadValue("be integers separated by commas", last(texts) as string);
        return id;
      }),
});

/** Whole numbers from `least` on, separated by commas. */
export const counts = (doc: string, value: readonly number[], least = 1): Option<readonly number[]> => ({
  placeholder: "<counts>",
  doc: defaulted(doc, value.join(",")),
  read: (texts) =>
    last(texts)
      ?.split(",")
      .map((part) => {
        const count = part.trim() === "" ? Number.NaN : Number(part);
        if (!Number.isSafeInteger(count) || count < least)
          throw new BadValue(`be integers ≥ ${least} separated by commas`, last(texts) as string);
        return count;
      }) ?? value,
});

/** Names, separated by commas. */
export const names = (placeholder: string, doc: string): Option<string[] | undefined> => ({
  placeholder,
  doc,
  read: (texts) =>
    last(texts)
      ?.split(",")
      .map((part) => {
        if (part.trim() === "") throw new BadValue("be names separated by commas", last(texts) as string);
        return part.trim();
      }),
});

/** An option that may be given several times, with several values each time. */
export const list = (
  placeholder: string,
  doc: string,
  {
    takes = () => true,
    rule = "be a name",
    values,
  }: Partial<Pick<Option<string[]>, "takes" | "values">> & { rule?: string } = {},
): Option<string[]> => ({
  placeholder,
  doc,
  multiple: true,
  takes,
  ...(values && { values }),
  read: (texts) => {
    const wrong = texts.find((each) => each.trim() === "" || !takes(each));
    if (wrong !== undefined) throw new BadValue(rule, wrong);
    return [...texts];
  },
});

/** The same option, which must be given. */
export const required = <T>(option: Option<T>): Option<Exclude<T, undefined>> => ({
  ...option,
  doc: `${option.doc}; required`,
  read: (texts) => {
    if (texts.length === 0) throw new BadValue("be given", "nothing");
    return option.read(texts) as Exclude<T, undefined>;
  },
});
