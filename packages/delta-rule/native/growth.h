// What validate_rule looks for on CPUs and GPUs: numbers that let the state grow.
#pragma once
#include "portable.h"

namespace mlxts {

// Whether a gate is a decay above 1, or no decay at all; a factor of 0: the gate is the decay itself.
MLXTS_FUNC bool gate_grows(float gate, float factor) {
  return factor != 0.0f ? gate * factor > 0.0f : gate < 0.0f || gate > 1.0f;
}

// |k|² of a key after the norm that `eps` and `floor` stand for, from |k|² before it and its root with eps.
MLXTS_FUNC float normalized_squares(float squares, float norm, float eps, float floor) {
  return squares / (norm < floor ? floor * floor : squares + eps);
}

// Whether a step β |k|² is above 2, by more than a rounded key can make it.
MLXTS_FUNC bool step_grows(float step) { return step > 2.001f; }

}  // namespace mlxts
