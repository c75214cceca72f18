// Names that a kernel may look for in Metal's library and that the compiler then does not find.

const words = (text: string) => new Set(text.trim().split(/\s+/));

/** Of Metal's library, and not simulated. */
const NOT_SIMULATED = words(`
  pack_float_to_unorm4x8 pack_float_to_snorm4x8 pack_float_to_srgb_unorm4x8 pack_float_to_unorm2x16
  pack_float_to_snorm2x16 pack_float_to_unorm10a2 pack_float_to_unorm565 pack_half_to_unorm4x8 pack_half_to_snorm4x8
  pack_half_to_srgb_unorm4x8 pack_half_to_unorm2x16 pack_half_to_snorm2x16 pack_half_to_unorm10a2 pack_half_to_unorm565
  unpack_unorm4x8_to_float unpack_snorm4x8_to_float unpack_unorm4x8_srgb_to_float unpack_unorm2x16_to_float
  unpack_snorm2x16_to_float unpack_unorm10a2_to_float unpack_unorm565_to_float unpack_unorm4x8_to_half
  unpack_snorm4x8_to_half unpack_unorm4x8_srgb_to_half unpack_unorm2x16_to_half unpack_snorm2x16_to_half
  unpack_unorm10a2_to_half unpack_unorm565_to_half determinant transpose simd_shuffle_and_fill_up
  simd_shuffle_and_fill_down simd_is_helper_thread array_ref make_array_ref dfdx dfdy fwidth discard_fragment get_num_samples get_sample_position raytracing
`);

/** Of C or C++, and not of Metal. */
const NOT_METAL = words(`
  erf erfc erff erfcf lgamma tgamma lgammaf tgammaf cbrt cbrtf hypot hypotf expm1 expm1f log1p log1pf remainder
  remainderf remquo nearbyint nearbyintf lrint llrint lround llround logb scalbn scalbln nan fpclassify
  expf exp2f logf log2f log10f powf sqrtf sinf cosf tanf asinf acosf atanf atan2f sinhf coshf tanhf asinhf acoshf atanhf
  fabsf floorf ceilf roundf truncf fmodf fminf fmaxf fmaf rintf copysignf ldexpf frexpf modff
  memcpy memset memmove memcmp malloc free abort exit assert swap move forward
`);

const MISSING = /(?:use of undeclared identifier|no member named|no template named) '(\w+)'/;

/** What a compiler's message about a name that it does not know really means, if the name is one of a library. */
export function libraryHint(message: string): string | undefined {
  const name = MISSING.exec(message)?.[1];
  if (name === undefined) return undefined;
  if (NOT_SIMULATED.has(name)) return `\`${name}\` of Metal's library is not simulated`;
  if (NOT_METAL.has(name)) return `\`${name}\` is not in Metal's library`;
  return undefined;
}
