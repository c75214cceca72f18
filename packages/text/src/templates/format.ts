// Text formatting of Python: `'%s' % values` and the format specifications of `str.format`.
import type { Budget } from "./budget.ts";
import { codePoints, lengthOf } from "./characters.ts";
import { typeFault, unsupported, valueFault } from "./faults.ts";
import { doubleOf, exponentText, numberOf, placeDigits, scaledInteger, truncate } from "./numbers.ts";
import { reprOf, textOf } from "./text_of.ts";
import { Dict, Float, isList, Markup, Tuple, typeName, Undefined, type Value } from "./values.ts";

const MAX_PRECISION = 1000;

/** Digits of a value > 0 and the exponent of the first, rounded to `count` digits. */
function significantDigits(value: number, count: number): { digits: string; exponent: number } {
  if (value === 0) return { digits: "0".repeat(count), exponent: 0 };
  let exponent = Number(value.toExponential().split("e")[1]);
  let digits = String(scaledInteger(value, count - 1 - exponent));
  if (digits.length > count) {
    exponent++;
    digits = digits.slice(0, count);
  }
  return { digits, exponent };
}

/** A finite value ≥ 0 in one of the formats of C's `printf`: e, f or g. */
function formatFloat(value: number, kind: string, precision: number, keepsZeros: boolean): string {
  if (precision > MAX_PRECISION) throw unsupported("such a precision");
  if (kind === "f") {
    const digits = String(scaledInteger(value, precision)).padStart(precision + 1, "0");
    const point = digits.length - precision;
    const fraction = digits.slice(point);
    return digits.slice(0, point) + (fraction || keepsZeros ? `.${fraction}` : "");
  }
  if (kind === "e") {
    const { digits, exponent } = significantDigits(value, precision + 1);
    const fraction = digits.slice(1);
    return `${digits.charAt(0)}${fraction || keepsZeros ? `.${fraction}` : ""}${exponentText(exponent)}`;
  }
  const count = Math.max(1, precision);
  const { digits, exponent } = significantDigits(value, count);
  if (keepsZeros) throw unsupported("the format flag #");
  return placeDigits(digits.replace(/0+$/, "") || "0", exponent, count, false);
}

function formatDouble(value: number, type: string, precision: number, alternate: boolean): string {
  const kind = type.toLowerCase();
  const text = Number.isFinite(value)
    ? formatFloat(Math.abs(value), kind, precision, alternate)
    : Number.isNaN(value)
      ? "nan"
      : "inf";
  return type === kind ? text : text.toUpperCase();
}

const isNegative = (value: number) => value < 0 || Object.is(value, -0);

/** Makes a text as wide as wanted; `zeros` go behind the sign. */
function pad(budget: Budget, sign: string, text: string, width: number, align: string, fill: string): string {
  const missing = width - lengthOf(sign) - lengthOf(text);
  if (!(missing > 0)) return budget.made(sign + text);
  budget.make(width * fill.length);
  if (align === "=") return sign + fill.repeat(missing) + text;
  const left = align === ">" ? missing : align === "^" ? missing >> 1 : 0;
  return fill.repeat(left) + sign + text + fill.repeat(missing - left);
}

const CONVERSION = /%(?:\(([^()]*)\))?([#0\- +]*)(\*|\d+)?(?:\.(\*|\d*))?[hlL]?([\s\S]|$)/g;

/** `format % values` */
export function formatPercent(budget: Budget, format: string, values: Value): string {
  const list: readonly Value[] = values instanceof Tuple ? values.items : [values];
  let used = 0;
  let usesNames = false;
  const next = (): Value => {
    if (used >= list.length) throw typeFault("not enough arguments for format string");
    return list[used++] as Value;
  };
  const width = (text: string | undefined): number | undefined => {
    if (text === undefined) return undefined;
    if (text !== "*") return Number(text);
    const value = next();
    if (typeof value !== "number") throw typeFault("* wants int");
    return value;
  };
  budget.work(format.length / 8);
  const result = format.replace(
    CONVERSION,
    (_, name?: string, flags = "", widthText?: string, precisionText?: string, type = "") => {
      if (type === "%") return "%";
      let given: Value | undefined;
      if (name !== undefined) {
        if (!(values instanceof Dict)) throw typeFault("format requires a mapping");
        usesNames = true;
        given = values.get(name);
        if (given === undefined) throw valueFault(`KeyError: '${name}'`);
      }
      const wide = width(widthText) ?? 0;
      const precision = width(precisionText === "" ? "0" : precisionText);
      const isLeft = flags.includes("-") || wide < 0;
      const conversion = convert(budget, type, given === undefined ? next() : given, precision, flags);
      const fillsZeros = flags.includes("0") && !isLeft && conversion.isNumber;
      const align = isLeft ? "<" : fillsZeros ? "=" : ">";
      return pad(budget, conversion.sign, conversion.text, Math.abs(wide), align, fillsZeros ? "0" : " ");
    },
  );
  // A dict or list may be left over.
  if (used < list.length && !usesNames && !(values instanceof Dict) && !isList(values))
    throw typeFault("not all arguments converted during string formatting");
  return budget.made(result);
}

interface Converted {
  sign: string;
  text: string;
  isNumber: boolean;
}

function signOf(negative: boolean, flags: string): string {
  return negative ? "-" : flags.includes("+") ? "+" : flags.includes(" ") ? " " : "";
}

const clip = (text: string, precision: number | undefined) =>
  precision === undefined ? text : codePoints(text).slice(0, precision).join("");

function convert(budget: Budget, type: string, value: Value, precision: number | undefined, flags: string): Converted {
  switch (type) {
    case "s":
      return { sign: "", text: clip(textOf(budget, value), precision), isNumber: false };
    case "r":
      return { sign: "", text: clip(reprOf(budget, value), precision), isNumber: false };
    case "a":
      throw unsupported("the conversion %a");
    case "c": {
      if (typeof value === "number" && value >= 0 && value <= 0x10ffff)
        return { sign: "", text: String.fromCodePoint(value), isNumber: false };
      if (typeof value === "string" && lengthOf(value) === 1) return { sign: "", text: value, isNumber: false };
      throw typeFault("%c requires int or char");
    }
    case "d":
    case "i":
    case "u":
    case "x":
    case "X":
    case "o": {
      const number = numberOf(value);
      const isDecimal = "diu".includes(type);
      if (value instanceof Undefined && isDecimal) throw value.fault();
      if (number === undefined || (!isDecimal && number instanceof Float))
        throw typeFault(`%${type} format: a number is required, not ${typeName(value)}`);
      const whole = BigInt(number instanceof Float ? truncate(number.value) : number);
      const digits = (whole < 0n ? -whole : whole).toString(isDecimal ? 10 : type === "o" ? 8 : 16);
      const prefix = !isDecimal && flags.includes("#") ? `0${type}` : "";
      const text = (type === "X" ? digits.toUpperCase() : digits).padStart(precision ?? 0, "0");
      return { sign: signOf(whole < 0n, flags) + prefix, text, isNumber: true };
    }
    case "e":
    case "E":
    case "f":
    case "F":
    case "g":
    case "G": {
      if (value instanceof Undefined) throw value.fault();
      const number = numberOf(value);
      if (number === undefined) throw typeFault(`must be real number, not ${typeName(value)}`);
      const double = doubleOf(number);
      const text = formatDouble(double, type, precision ?? 6, flags.includes("#"));
      return { sign: signOf(isNegative(double), flags), text, isNumber: true };
    }
    case "":
      throw valueFault("incomplete format");
    default:
      throw valueFault(`unsupported format character '${type}'`);
  }
}

const SPECIFICATION = /^(?:([\s\S])?([<>=^]))?([+\- ])?(z)?(#)?(0)?(\d+)?([,_])?(?:\.(\d+))?([a-zA-Z%])?$/u;

/** `format(value, specification)` */
export function formatValue(budget: Budget, value: Value, specification: string): string {
  if (typeof value !== "string" && numberOf(value) === undefined) {
    if (value instanceof Markup) throw unsupported("formatting the result of `safe` or `escape`");
    if (specification !== "") throw typeFault(`unsupported format string passed to ${typeName(value)}.__format__`);
    return textOf(budget, value);
  }
  if (specification === "") return textOf(budget, value);
  const parts = SPECIFICATION.exec(specification);
  if (!parts) throw valueFault(`Invalid format specifier '${specification}'`);
  const [, fillText, alignText, sign = "", zed, alternate, zero, widthText, grouping, precisionText, type] = parts;
  if (zed) throw unsupported("the format flag z");
  const width = Number(widthText ?? 0);
  const precision = precisionText === undefined ? undefined : Number(precisionText);
  const fill = fillText ?? (zero ? "0" : " ");
  if (typeof value === "string") {
    if (type !== undefined && type !== "s") throw valueFault(`Unknown format code '${type}' for object of type 'str'`);
    if (sign || alternate || grouping || alignText === "=")
      throw valueFault("this flag is not allowed in a string format specifier");
    return pad(budget, "", clip(value, precision), width, alignText ?? "<", fill);
  }
  const align = alignText ?? (zero ? "=" : ">");
  const number = numberOf(value) as number | bigint | Float;
  if (typeof value === "boolean" && type === undefined) throw unsupported("a format of a boolean without a type");
  const asFloat = value instanceof Float || (type !== undefined && "eEfFgG%".includes(type));
  if (grouping && zero) throw unsupported("a format with zeros and groups of digits");
  if (!asFloat) {
    const whole = BigInt(number as number | bigint);
    if (precision !== undefined) throw valueFault("Precision not allowed in integer format specifier");
    const base = { b: 2, o: 8, x: 16, X: 16, d: 10, n: 10 }[type ?? "d"];
    if (type === "c" || type === "n") throw unsupported(`the format type ${type}`);
    if (base === undefined) throw valueFault(`Unknown format code '${type}' for object of type 'int'`);
    if (grouping === "," && base !== 10) throw valueFault(`Cannot specify ',' with '${type}'.`);
    let digits = (whole < 0n ? -whole : whole).toString(base);
    if (type === "X") digits = digits.toUpperCase();
    if (grouping) digits = group(digits, grouping, base === 10 ? 3 : 4);
    const prefix = alternate && base !== 10 ? `0${type}` : "";
    return pad(budget, signOf(whole < 0n, sign) + prefix, digits, width, align, fill);
  }
  if (alternate) throw unsupported("the format flag #");
  const double = doubleOf(number);
  let text: string;
  if (type === undefined) text = withoutType(Math.abs(double), precision, budget);
  else if (type === "%") text = `${formatDouble(double * 100, "f", precision ?? 6, false)}%`;
  else if ("eEfFgG".includes(type)) text = formatDouble(double, type, precision ?? 6, false);
  else throw valueFault(`Unknown format code '${type}' for object of type 'float'`);
  if (grouping) {
    const [, whole = "", rest = ""] = /^(\d*)([\s\S]*)$/.exec(text) ?? [];
    text = group(whole, grouping, 3) + rest;
  }
  return pad(budget, signOf(isNegative(double), sign), text, width, align, fill);
}

/** A float ≥ 0 without a format type: as `g`, but with a point, and with all digits unless a precision is given. */
function withoutType(value: number, precision: number | undefined, budget: Budget): string {
  if (precision === undefined || !Number.isFinite(value)) return textOf(budget, new Float(value));
  const count = Math.max(1, precision);
  const { digits, exponent } = significantDigits(value, count);
  // Unlike with `g` the exponent begins one digit earlier.
  return placeDigits(digits.replace(/0+$/, "") || "0", exponent, count - 1, true);
}

function group(digits: string, separator: string, size: number): string {
  const first = digits.length % size || size;
  let result = digits.slice(0, first);
  for (let at = first; at < digits.length; at += size) result += separator + digits.slice(at, at + size);
  return result;
}

const FIELD = /\{\{|\}\}|\{([^{}!:]*)(?:!([^{}:]*))?(?::((?:[^{}]|\{[^{}]*\})*))?\}|[{}]/g;

/** `format.format(…)`: `field` finds the value that a name such as `0.name[key]` stands for. */
export function formatBraces(
  budget: Budget,
  format: string,
  field: (name: string, automatic: () => number) => Value,
): string {
  let automatic = 0;
  const next = () => automatic++;
  const fill = (name: string, conversion: string | undefined, specification: string): string => {
    let value = field(name, next);
    if (conversion === "r") value = reprOf(budget, value);
    else if (conversion === "s") value = textOf(budget, value);
    else if (conversion !== undefined) throw unsupported(`the conversion !${conversion}`);
    const inner = specification.replace(/\{([^{}!:]*)\}/g, (_, of: string) => textOf(budget, field(of, next)));
    return formatValue(budget, value, inner);
  };
  budget.work(format.length / 8);
  const result = format.replace(FIELD, (all, name: string | undefined, conversion?: string, specification?: string) => {
    if (all === "{{") return "{";
    if (all === "}}") return "}";
    if (name === undefined) throw valueFault(`Single '${all}' encountered in format string`);
    return fill(name, conversion, specification ?? "");
  });
  return budget.made(result);
}
