// Decodes and checks a command list: 32-bit words that packages/core/src/command_writer.ts writes.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "device.h"

namespace mlxts {

// dispatch: 1, pipeline, tag, threadgroups x3, threadsPerThreadgroup x3, scratchBytes, guards, mayFault, written, early,
//           bindings, paramWords; an offset into the scratch for each guard; for each binding memory, offset low, offset
//           high, bytes low, bytes high; then the params.
// barrier:  2.      fill: 3, tag, byte, memory, offset low, offset high, bytes low, bytes high.
std::shared_ptr<CommandList> decodeCommandList(const uint32_t* words, size_t count,
                                               std::vector<std::shared_ptr<Memory>> memories);

}  // namespace mlxts
