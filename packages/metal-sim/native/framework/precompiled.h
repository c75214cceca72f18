// As core's, for Objective-C++: the declarations of its runtime come first, or clang takes them twice.
#pragma once

#include <objc/runtime.h>

#include "../../../core/native/precompiled.h"
