// What most sources of the addon and of the Metal simulator include, precompiled: reading it takes longer than compiling
// most of them. Each source includes what it uses all the same.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <napi.h>
