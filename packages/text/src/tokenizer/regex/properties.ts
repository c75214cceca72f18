import { PatternError } from "./ast.ts";

/**
 * Characters that Unicode 17 added. The `tokenizers` library has tables of Unicode 16, in which they are unassigned;
 * JavaScript's depend on the version of the engine.
 */
const SINCE_UNICODE_17 =
  "88f c5c cdc 1acf-1add 1ae0-1aeb 20c1 2b96 a7ce-a7cf a7d2 a7d4 a7f1 fbc3-fbd2 fd90-fd91 fdc8-fdce 10940-10959 " +
  "10ec5-10ec7 10ed0-10ed8 10efa-10efb 11b60-11b67 11db0-11ddb 11de0-11de9 16ea0-16eb8 16ebb-16ed3 16ff2-16ff6 " +
  "187f8-187ff 18d09-18d1e 18d80-18df2 1ccfa-1ccfc 1ceba-1ced0 1cee0-1cef0 1e6c0-1e6de 1e6e0-1e6f5 1e6fe-1e6ff " +
  "1f6d8 1f777-1f77a 1f8d0-1f8d8 1fa54-1fa57 1fa8a 1fa8e 1fac8 1facd 1faea 1faef 1fbfa 2b73a-2b73f 2cea2-2cead " +
  "323b0-33479";
const NEW = `[${SINCE_UNICODE_17.replace(/[0-9a-f]+/g, (hex) => `\\u{${hex}}`).replaceAll(" ", "")}]`;

const known = (source: string) => `[${source}--${NEW}]`;
/** `\w`; `[[:word:]]` and `\p{Word}` lack the superscripts and fractions. */
const WORD = known("[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]");

/** Classes for a RegExp with the flag `v`, by the letter of their escape. */
export const ESCAPED_CLASSES: Readonly<Record<string, string>> = {
  s: "[\\p{White_Space}]",
  w: `[${WORD}\\u00b2\\u00b3\\u00b9\\u00bc-\\u00be]`,
  d: known("[\\p{Nd}]"),
  h: "[0-9a-fA-F]",
};

/** Classes by the names of POSIX brackets. */
export const POSIX_CLASSES: Readonly<Record<string, string>> = {
  alnum: known("[\\p{Alphabetic}\\p{Nd}]"),
  alpha: known("[\\p{Alphabetic}]"),
  ascii: "[\\u0000-\\u007f]",
  blank: "[\\p{Zs}\\t]",
  cntrl: "[\\p{Cc}]",
  digit: known("[\\p{Nd}]"),
  graph: `[^\\p{White_Space}\\p{Cc}\\p{Cn}\\p{Cs}${NEW}]`,
  lower: known("[\\p{Lowercase}]"),
  print: `[^\\p{Zl}\\p{Zp}\\p{Cc}\\p{Cn}\\p{Cs}${NEW}]`,
  punct: known("[\\p{P}\\p{S}]"),
  space: "[\\p{White_Space}]",
  upper: known("[\\p{Uppercase}]"),
  xdigit: "[0-9a-fA-F]",
  word: WORD,
};

/** General categories with the names that Unicode and Oniguruma know them by. */
const CATEGORIES: Readonly<Record<string, string>> = {
  c: "C", other: "C", cc: "Cc", control: "Cc", cf: "Cf", format: "Cf", cn: "Cn", unassigned: "Cn", co: "Co", privateuse: "Co",
  cs: "Cs", surrogate: "Cs", l: "L", letter: "L", lc: "LC", casedletter: "LC", ll: "Ll", lowercaseletter: "Ll", lm: "Lm",
  modifierletter: "Lm", lo: "Lo", otherletter: "Lo", lt: "Lt", titlecaseletter: "Lt", lu: "Lu", uppercaseletter: "Lu", m: "M",
  mark: "M", combiningmark: "M", mc: "Mc", spacingmark: "Mc", me: "Me", enclosingmark: "Me", mn: "Mn", nonspacingmark: "Mn",
  n: "N", number: "N", nd: "Nd", decimalnumber: "Nd", nl: "Nl", letternumber: "Nl", no: "No", othernumber: "No", p: "P",
  punctuation: "P", pc: "Pc", connectorpunctuation: "Pc", pd: "Pd", dashpunctuation: "Pd", pe: "Pe", closepunctuation: "Pe",
  pf: "Pf", finalpunctuation: "Pf", pi: "Pi", initialpunctuation: "Pi", po: "Po", otherpunctuation: "Po", ps: "Ps",
  openpunctuation: "Ps", s: "S", symbol: "S", sc: "Sc", currencysymbol: "Sc", sk: "Sk", modifiersymbol: "Sk", sm: "Sm",
  mathsymbol: "Sm", so: "So", othersymbol: "So", z: "Z", separator: "Z", zl: "Zl", lineseparator: "Zl", zp: "Zp",
  paragraphseparator: "Zp", zs: "Zs", spaceseparator: "Zs",
}; // biome-ignore format: a table

/** Whether a RegExp knows the property. */
function exists(property: string): boolean {
  try {
    new RegExp(`\\p{${property}}`, "v");
    return true;
  } catch {
    return false;
  }
}

/** The class of a property `\p{name}`, for a RegExp with the flag `v`. */
export function propertyClass(name: string): string {
  const plain = name.toLowerCase().replace(/[\s_-]/g, "");
  if (plain === "any") return "[\\u{0}-\\u{10ffff}]";
  if (plain === "assigned") return `[\\P{Cn}--${NEW}]`;
  if (plain === "word") return ESCAPED_CLASSES.w as string;
  if (plain === "punct") return known("[\\p{P}]");
  if (Object.hasOwn(POSIX_CLASSES, plain)) return POSIX_CLASSES[plain] as string;
  if (Object.hasOwn(CATEGORIES, plain)) {
    const category = CATEGORIES[plain] as string;
    if (category === "C" || category === "Cn") return `[\\p{${category}}${NEW}]`;
    return category === "Ll" ? `[${known("[\\p{Ll}]")}\\u0295]` : known(`[\\p{${category}}]`);
  }
  const words = name.trim().split(/[\s_-]+/);
  const title = words.map((word) => word.charAt(0).toUpperCase() + word.slice(1).toLowerCase()).join("_");
  for (const candidate of [`Script=${title}`, `Script=${name}`, title, name])
    if (/^[\w=]+$/.test(candidate) && exists(candidate)) return known(`[\\p{${candidate}}]`);
  throw new PatternError(`\\p{${name}} is not supported`);
}
