import { type Refusal, refusal } from "./errors.ts";
import { isWord, type Token } from "./tokens.ts";

/** Why a word cannot be translated. */
const WORDS: Record<string, string> = {
  double: "does not exist in MSL",
  goto: "does not exist in MSL",
  dynamic_cast: "does not exist in MSL",
  typeid: "does not exist in MSL",
  throw: "does not exist in MSL",
  try: "does not exist in MSL",
  catch: "does not exist in MSL",
  new: "does not exist in MSL",
  delete: "does not exist in MSL",
  virtual: "does not exist in MSL",
  noexcept: "does not exist in MSL",
  thread_local: "does not exist in MSL",
  asm: "cannot be run here",
  __asm__: "cannot be run here",
  vertex: "functions are not simulated, only kernels",
  fragment: "functions are not simulated, only kernels",
  ray_data: "is not simulated",
  is_function_constant_defined: "is not simulated: make template instances instead of function constants",
  atomic_float: "is not simulated: atomics hold int or uint",
  atomic_bool: "is not simulated: atomics hold int or uint",
  atomic_ulong: "is not simulated: atomics hold int or uint",
  atomic_thread_fence: "is not simulated: use barriers",
  mem_texture: "is not simulated",
  mem_threadgroup_imageblock: "is not simulated",
  printf: "is not simulated",
  os_log_default: "is not simulated",
};

const PATTERNS: [RegExp, string][] = [
  [/^(texture|depth)(1d|2d|3d|cube)\w*$/, "is not simulated: textures are outside the subset"],
  [/^(sampler|imageblock|imageblock_data|texture_buffer)$/, "is not simulated: textures are outside the subset"],
  [/^memory_order_(?!relaxed$)\w+$/, "is not simulated: atomics are relaxed"],
  [/^quad_\w+$/, "is not simulated: quadgroup functions are outside the subset"],
  [/^simdgroup_(async_copy|event|future)\w*$/, "is not simulated"],
  [/^(visible|intersection)_function_table$/, "is not simulated"],
  [/^(float|half|bfloat)[234]x[234]$/, "is not simulated: use arrays of vectors, or simdgroup matrices"],
  [/^os_log\w*$/, "is not simulated"],
  [/^__metal\w*$/, "is a compiler's internal"],
  [/^metal_sim\w*$/, "is a name of the simulator"],
];

const SWIZZLE = /^(?:[xyzw]{2,4}|[rgba]{2,4})$/;

/** Refusals that single tokens and their neighbors give away. */
export function refusedTokens(tokens: readonly Token[], includes: ReadonlySet<string>): Refusal[] {
  const found: Refusal[] = [];
  const isMember = (i: number) => tokens[i - 1]?.text === "." || tokens[i - 1]?.text === "->";
  const declared = new Set(tokens.filter((t, i) => isWord(t) && !isMember(i)).map((t) => t.text));
  let matrix = false;
  for (const [i, token] of tokens.entries()) {
    const { text } = token;
    const previous = tokens[i - 1];
    if (text === "[" && tokens[i + 1]?.text !== "[" && previous?.text !== "[") {
      const subscript =
        previous && ((isWord(previous) && previous.text !== "return") || [")", "]", ">"].includes(previous.text));
      if (!subscript) found.push(refusal(token, "[…]", "is a lambda expression, which MSL does not have"));
    }
    if (!isWord(token)) continue;
    const reason = Object.hasOwn(WORDS, text) ? WORDS[text] : PATTERNS.find(([pattern]) => pattern.test(text))?.[1];
    if (isMember(i)) {
      if (SWIZZLE.test(text) && !declared.has(text))
        found.push(
          refusal(token, `.${text}`, "accesses several components: outside the subset, access components one by one"),
        );
    } else if (reason !== undefined) found.push(refusal(token, text, reason));
    else if (text === "long" && tokens[i + 1]?.text === "double")
      found.push(refusal(token, "long double", "does not exist in MSL"));
    else if (/^(simdgroup_matrix|simdgroup_(float|half|bfloat)8x8)$/.test(text) && !matrix) {
      matrix = true;
      if (!includes.has("metal_simdgroup_matrix"))
        found.push(refusal(token, text, "needs #include <metal_simdgroup_matrix>"));
    }
  }
  return found;
}
