// Translates errors of Metal command buffers into the causes of this project (CommandBufferCause of errors.ts).
#pragma once
#include <string>

namespace mlxts {

// The cause of a failed submission, from the error's code (MTLCommandBufferError) and text.
std::string commandBufferCause(long code, const std::string& text);

}  // namespace mlxts
