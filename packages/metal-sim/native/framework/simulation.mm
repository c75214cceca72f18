#include "simulation.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "../engine.h"

namespace metal_framework {

namespace {

std::atomic<uint64_t> counts[int(Count::end)], mostResident;

std::string variable(const char* name) {
  const char* value = getenv(name);
  return value ? value : "";
}

void report() {
  const char* names[] = {"command buffers", "dispatches", "fills", "residency commits", "captures"};
  fprintf(stderr, "metal-sim: %llu live objects", static_cast<unsigned long long>(liveObjects()));
  for (int i = 0; i < int(Count::end); ++i)
    fprintf(stderr, ", %llu %s", static_cast<unsigned long long>(counts[i].load()), names[i]);
  fprintf(stderr, ", %llu bytes resident at most\n", static_cast<unsigned long long>(mostResident.load()));
}

// At load: the report then runs after everything that this library's users register later.
const bool reporting = variable("MLXTS_METAL_SIM_REPORT") == "1" && atexit(report) == 0;

}  // namespace

void broken(const std::string& rule) {
  fprintf(stderr, "metal-sim: broken rule: %s\n", rule.c_str());
  abort();
}

std::optional<std::string> fault(const char* name, uint64_t number) {
  const std::string wanted = name, all = variable("MLXTS_METAL_SIM_FAULT");
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find(',', at), all.size());
    std::string item = all.substr(at, end - at);
    at = end + 1;
    const size_t numbered = item.find('@');
    if (numbered != std::string::npos && strtoull(item.c_str() + numbered + 1, nullptr, 10) != number) continue;
    item.resize(std::min(numbered, item.size()));
    const size_t colon = std::min(item.find(':'), item.size());
    if (item.substr(0, colon) == wanted) return item.substr(std::min(colon + 1, item.size()));
  }
  return std::nullopt;
}

unsigned faultNumber(const char* name, uint64_t number) {
  return unsigned(strtoul(fault(name, number).value_or("0").c_str(), nullptr, 10));
}

void count(Count what) { counts[int(what)].fetch_add(1, std::memory_order_relaxed); }

void countResident(uint64_t bytes) {
  uint64_t most = mostResident;
  while (most < bytes && !mostResident.compare_exchange_weak(most, bytes)) {
  }
}

Settings settings() {
  Settings out;
  if (variable("MLXTS_METAL_SIM_CHECK") == "1") out.build = METAL_SIM_CHECK;
  if (!variable("MLXTS_METAL_SIM_COVERAGE").empty()) out.build = METAL_SIM_COVERAGE;
  const std::string schedule = variable("MLXTS_METAL_SIM_SCHEDULE");
  if (schedule == "reverse") out.schedule = METAL_SIM_REVERSE;
  if (schedule.starts_with("random")) {
    out.schedule = METAL_SIM_RANDOM;
    out.seed = strtoull(schedule.c_str() + std::min<size_t>(schedule.size(), 7), nullptr, 10);
  }
  return out;
}

namespace {

struct Covered {
  metal_sim_library* library;
  std::string name;
  uint32_t blocks;  // when it was last written down
};
std::mutex coverMutex;
auto& covered = *new std::vector<Covered>;

void writeLines() {
  const auto path = variable("MLXTS_METAL_SIM_COVERAGE") + "/" + std::to_string(getpid());
  FILE* out = fopen((path + ".tmp").c_str(), "w");
  if (!out) return;
  std::pair<FILE*, const char*> context{out, nullptr};
  for (auto& each : covered) {
    context.second = each.name.c_str();
    metal_sim_coverage(
        each.library,
        [](void* to, const char* file, uint32_t line, int executed) {
          const auto& [stream, library] = *static_cast<decltype(context)*>(to);
          fprintf(stream, "%s %s:%u %d\n", library, file, line, executed != 0);
        },
        &context);
  }
  fclose(out);
  rename((path + ".tmp").c_str(), (path + ".lines").c_str());
}

}  // namespace

void coverLibrary(metal_sim_library* library, const std::string& text) {
  const size_t open = text.find('"'), close = text.find('"', open + 1);
  const bool named = text.starts_with("#line 1 \"") && close != std::string::npos;
  std::lock_guard lock(coverMutex);
  covered.push_back({library, named ? text.substr(open + 1, close - open - 1) : "program_source", 0});
  writeLines();
}

void saveCoverage() {
  std::lock_guard lock(coverMutex);
  bool changed = false;
  for (auto& each : covered) {
    const uint32_t blocks = metal_sim_covered_blocks(each.library);
    changed = changed || blocks != each.blocks;
    each.blocks = blocks;
  }
  if (changed) writeLines();
}

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

NSString* string(const std::string& text) { return [NSString stringWithUTF8String:text.c_str()]; }

NSError* error(const char* domain, NSInteger code, const std::string& text) {
  if (fault("no-reason")) return nil;
  // The simulated NSError takes its text in place of the dictionary.
  return [NSError errorWithDomain:string(domain) code:code userInfo:(NSDictionary*)(id)string(text)];
}

}  // namespace metal_framework
