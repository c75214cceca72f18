// What Metal's command buffer errors mean in the taxonomy of this project.
#pragma once
#include <string>

namespace mlxts {

// The cause of a failed submission, from the error's code (MTLCommandBufferError) and text.
std::string commandBufferCause(long code, const std::string& text);

}  // namespace mlxts
