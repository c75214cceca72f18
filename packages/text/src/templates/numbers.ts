// Arithmetic of Python: unbounded integers and floats, and how floats are written.
import type { Budget } from "./budget.ts";
import { Fault, typeFault, unsupported, valueFault } from "./faults.ts";
import type { BinaryOperator } from "./nodes.ts";
import { Float, isInteger, typeName, type Value } from "./values.ts";

/** The most bits of an integer. */
const MAX_BITS = 1 << 14;

/** An integer in its only form: a number where that is exact. */
export function integer(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

/** A number of a template's text. */
export function parseNumber(text: string): Value {
  if (/^0[box]/i.test(text)) return integer(BigInt(text.toLowerCase()));
  if (/^\d+$/.test(text)) {
    if (text.length > 4300) throw valueFault("Exceeds the limit (4300 digits) for integer string conversion");
    return integer(BigInt(text));
  }
  return new Float(Number(text));
}

/** A value as number: booleans are 0 and 1. Undefined for what is no number. */
export function numberOf(value: Value): number | bigint | Float | undefined {
  if (typeof value === "boolean") return value ? 1 : 0;
  return isInteger(value) || value instanceof Float ? value : undefined;
}

/** A number as a double. Integers beyond the largest double fail. */
export function doubleOf(value: number | bigint | Float): number {
  if (value instanceof Float) return value.value;
  const number = Number(value);
  if (!Number.isFinite(number)) throw valueFault("int too large to convert to float");
  return number;
}

/** -1, 0 or 1, NaN where a NaN is compared. Exact also for large integers. */
export function compareNumbers(a: number | bigint | Float, b: number | bigint | Float): number {
  const x = a instanceof Float ? a.value : a;
  const y = b instanceof Float ? b.value : b;
  return x < y ? -1 : x > y ? 1 : x <= y ? 0 : Number.NaN;
}

const copySign = (magnitude: number, sign: number) =>
  sign < 0 || Object.is(sign, -0) ? -Math.abs(magnitude) : Math.abs(magnitude);

function floatModulo(a: number, b: number): number {
  const rest = a % b;
  if (rest === 0) return copySign(0, b);
  return rest < 0 !== b < 0 ? rest + b : rest;
}

function floatFloorDivision(a: number, b: number): number {
  const rest = a % b;
  let quotient = (a - rest) / b;
  if (rest !== 0 && rest < 0 !== b < 0) quotient -= 1;
  if (quotient === 0) return copySign(0, a / b);
  const floor = Math.floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

function floatArithmetic(operator: BinaryOperator, a: number, b: number): Float {
  switch (operator) {
    case "+":
      return new Float(a + b);
    case "-":
      return new Float(a - b);
    case "*":
      return new Float(a * b);
    case "**":
      return power(a, b);
  }
  if (b === 0) throw valueFault(operator === "/" ? "division by zero" : "float modulo by zero");
  if (operator === "/") return new Float(a / b);
  return new Float(operator === "%" ? floatModulo(a, b) : floatFloorDivision(a, b));
}

function power(a: number, b: number): Float {
  if (a === 0 && b < 0) throw valueFault("0.0 cannot be raised to a negative power");
  if (a < 0 && Number.isFinite(a) && Number.isFinite(b) && !Number.isInteger(b)) throw unsupported("a complex number");
  // C has pow(±1, x) = 1 for every x, JavaScript has NaN for some.
  if (a === 1 || (a === -1 && !Number.isFinite(b) && !Number.isNaN(b))) return new Float(1);
  const result = a ** b;
  if (!Number.isFinite(result) && Number.isFinite(a) && Number.isFinite(b))
    throw valueFault("Numerical result out of range");
  return new Float(result);
}

const bitsOf = (value: bigint) => value.toString(16).length * 4;

function integerArithmetic(budget: Budget, operator: BinaryOperator, a: number | bigint, b: number | bigint): Value {
  if (typeof a === "number" && typeof b === "number") {
    const quick = operator === "+" ? a + b : operator === "-" ? a - b : operator === "*" ? a * b : Number.NaN;
    // Without the negative zero, which integers lack.
    if (Number.isSafeInteger(quick)) return quick + 0;
  }
  const [x, y] = [BigInt(a), BigInt(b)];
  if ("/%//".includes(operator) && operator !== "*" && y === 0n)
    throw valueFault(operator === "/" ? "division by zero" : "integer division or modulo by zero");
  budget.work(1 + (bitsOf(x) + bitsOf(y)) / 64);
  const limited = (result: bigint) => {
    if (bitsOf(result) > MAX_BITS) throw new Fault("limit", `makes an integer of more than ${MAX_BITS} bits`);
    return integer(result);
  };
  switch (operator) {
    case "+":
      return limited(x + y);
    case "-":
      return limited(x - y);
    case "*":
      return limited(x * y);
    case "/":
      if (typeof a === "bigint" || typeof b === "bigint") throw unsupported("a division of integers beyond 2^53");
      return new Float(a / b);
    case "**": {
      if (y < 0n) return floatArithmetic("**", doubleOf(a), doubleOf(b));
      if (x !== 0n && x !== 1n && x !== -1n && bitsOf(x) * Number(y) > 2 * MAX_BITS)
        throw new Fault("limit", `makes an integer of more than ${MAX_BITS} bits`);
      return x === 0n || x === 1n || x === -1n
        ? integer(x === -1n ? (y % 2n === 0n ? 1n : -1n) : y === 0n ? 1n : x)
        : limited(x ** y);
    }
  }
  const rest = x % y;
  const isBelow = rest !== 0n && rest < 0n !== y < 0n;
  return integer(operator === "%" ? (isBelow ? rest + y : rest) : x / y - (isBelow ? 1n : 0n));
}

/** Arithmetic of numbers; undefined where an operand is none. */
export function arithmetic(budget: Budget, operator: BinaryOperator, a: Value, b: Value): Value | undefined {
  const x = numberOf(a);
  const y = numberOf(b);
  if (x === undefined || y === undefined) return undefined;
  return x instanceof Float || y instanceof Float
    ? floatArithmetic(operator, doubleOf(x), doubleOf(y))
    : integerArithmetic(budget, operator, x, y);
}

export function negate(value: Value, operator: "-" | "+"): Value {
  const number = numberOf(value);
  if (number === undefined) throw typeFault(`bad operand type for unary ${operator}: '${typeName(value)}'`);
  if (operator === "+") return number;
  if (number instanceof Float) return new Float(-number.value);
  return typeof number === "bigint" ? integer(-number) : 0 - number;
}

/** `repr` of a float: the shortest digits that give it again. */
export function floatRepr(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value < 0 ? "-inf" : "inf";
  if (value === 0) return Object.is(value, -0) ? "-0.0" : "0.0";
  const [mantissa = "", exponentText] = Math.abs(value).toExponential().split("e");
  const digits = mantissa.replace(".", "");
  return (value < 0 ? "-" : "") + placeDigits(digits, Number(exponentText), 16, true);
}

/** Digits with a point after the first, times 10^exponent: with an exponent if that is below -4 or at least `bound`. */
export function placeDigits(digits: string, exponent: number, bound: number, needsPoint: boolean): string {
  if (exponent < -4 || exponent >= bound) {
    const fraction = digits.length > 1 ? `.${digits.slice(1)}` : "";
    return `${digits.charAt(0)}${fraction}${exponentText(exponent)}`;
  }
  if (exponent < 0) return `0.${"0".repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  const fraction = digits.slice(exponent + 1);
  return fraction || needsPoint ? `${whole}.${fraction || "0"}` : whole;
}

export const exponentText = (exponent: number) =>
  `e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;

/** value · 10^digits of a finite value ≥ 0, rounded half to even from its exact value. */
export function scaledInteger(value: number, digits: number): bigint {
  const bits = new DataView(new ArrayBuffer(8));
  bits.setFloat64(0, value);
  const raw = bits.getBigUint64(0);
  const stored = Number((raw >> 52n) & 0x7ffn);
  const mantissa = (raw & 0xfffffffffffffn) | (stored === 0 ? 0n : 1n << 52n);
  const exponent = Math.max(stored, 1) - 1075;
  let numerator = mantissa * (exponent > 0 ? 1n << BigInt(exponent) : 1n);
  let denominator = exponent < 0 ? 1n << BigInt(-exponent) : 1n;
  if (digits >= 0) numerator *= 10n ** BigInt(digits);
  else denominator *= 10n ** BigInt(-digits);
  const quotient = numerator / denominator;
  const rest = 2n * (numerator % denominator);
  return rest > denominator || (rest === denominator && quotient % 2n === 1n) ? quotient + 1n : quotient;
}

/** `round` of a float to so many digits. */
export function roundFloat(value: number, digits: number): number {
  if (!Number.isFinite(value) || digits > 323) return value;
  if (digits < -309) return copySign(0, value);
  return copySign(Number(`${scaledInteger(Math.abs(value), digits)}e${-digits}`), value);
}

/** `round` of an integer to 10^-digits, half to even. */
export function roundInteger(value: number | bigint, digits: number): number | bigint {
  if (digits >= 0) return value;
  if (digits < -4300) return 0;
  const unit = 10n ** BigInt(-digits);
  const x = BigInt(value);
  let rest = x % unit;
  if (rest < 0n) rest += unit;
  const below = x - rest;
  const isUp = 2n * rest > unit || (2n * rest === unit && (below / unit) % 2n !== 0n);
  return integer(isUp ? below + unit : below);
}

/** The integer towards zero. */
export function truncate(value: number): number | bigint {
  if (Number.isNaN(value)) throw valueFault("cannot convert float NaN to integer");
  if (!Number.isFinite(value)) throw valueFault("cannot convert float infinity to integer");
  const whole = Math.trunc(value) + 0;
  return Number.isSafeInteger(whole) ? whole : BigInt(whole);
}
