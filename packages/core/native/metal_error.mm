#include "metal_error.h"

#import <Metal/Metal.h>

namespace mlxts {

std::string commandBufferCause(long code, const std::string& text) {
  const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
  // The work was stopped for another program's fault or for the display; only the text tells this.
  if (says("InnocentVictim") || says("ImpactingInteractivity")) return "interrupted";
  switch (code) {
    case MTLCommandBufferErrorTimeout:
      return "timeout";
    case MTLCommandBufferErrorPageFault:
      return "pageFault";
    case MTLCommandBufferErrorOutOfMemory:
      return "outOfMemory";
    case MTLCommandBufferErrorNotPermitted:
    case MTLCommandBufferErrorInvalidResource:
    case MTLCommandBufferErrorMemoryless:
    case MTLCommandBufferErrorStackOverflow:
      return "invalidResource";
    // Revoked: after repeated faults the system ignores everything that the process submits.
    case MTLCommandBufferErrorAccessRevoked:
    case MTLCommandBufferErrorDeviceRemoved:
      return "deviceLost";
    default:
      return says("CallbackErrorHang") ? "timeout" : "unknown";
  }
}

}  // namespace mlxts
