// What the simulated frameworks share: broken rules, the count of live objects, and faults on request.
#pragma once
#import <Foundation/Foundation.h>

#include <cstdint>
#include <optional>
#include <string>

typedef struct metal_sim_library metal_sim_library;

namespace metal_framework {

// A rule of Metal or of reference counting has been broken: says which and ends the process, as Metal's validation
// does.
[[noreturn]] void broken(const std::string& rule);
inline void must(bool holds, const char* rule) {
  if (!holds) broken(rule);
}

// Whether the object made as number `serial` still exists; its address may belong to another by now.
bool alive(id object, uint64_t serial);
uint64_t serialOf(id object);
uint64_t liveObjects();

// MLXTS_METAL_SIM_FAULT is a comma-separated list of `name` or `name:value`, read anew at each call: the value of a
// fault that is asked for. With `@N` behind it, it is asked for where `number` is N. README.md lists them.
std::optional<std::string> fault(const char* name, uint64_t number = 0);
unsigned faultNumber(const char* name, uint64_t number = 0);
// How often Metal was asked for something, for the report at exit that MLXTS_METAL_SIM_REPORT=1 asks for.
enum class Count { commandBuffers, dispatches, fills, residencyCommits, captures, end };
void count(Count what);
// So many bytes are resident; the report tells the most.
void countResident(uint64_t bytes);

// Metal's objects autorelease others when they go: whoever releases one needs a pool.
void mustHavePool();

// MLXTS_METAL_SIM_SCHEDULE (forward, reverse, random:SEED), MLXTS_METAL_SIM_CHECK (1) and MLXTS_METAL_SIM_COVERAGE (a
// folder), read when a device is made.
struct Settings {
  uint32_t schedule = 0;  // metal_sim_schedule
  uint64_t seed = 0;
  uint32_t build = 0;  // metal_sim_build
};
Settings settings();
// The lines of this library, executed or not, are kept in the folder of MLXTS_METAL_SIM_COVERAGE.
void coverLibrary(::metal_sim_library* library, const std::string& text);
// After work: a process may end without notice.
void saveCoverage();

double seconds();
NSString* string(const std::string& text);
NSError* error(const char* domain, NSInteger code, const std::string& text);

}  // namespace metal_framework
