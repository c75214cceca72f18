// What the processor is and can do.
#pragma once
#include <string>

namespace mlxts {

std::string cpuName();
unsigned physicalCores();

}  // namespace mlxts
