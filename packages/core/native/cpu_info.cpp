#include "cpu_info.h"

#include <fstream>
#include <set>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include "device.h"

namespace mlxts {

std::vector<std::string> cpuLevels() {
#if defined(__x86_64__)
  std::vector<std::string> levels;
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni") &&
                      __builtin_cpu_supports("avx512bf16");
  if (avx512) levels.push_back("avx512");
  if (avx2) levels.push_back("avx2");
  levels.push_back("sse2");
  return levels;
#elif defined(__aarch64__)
  return {"neon"};
#else
  return {"generic"};
#endif
}

std::string cpuName() {
#if defined(__APPLE__)
  char name[256];
  size_t size = sizeof name;
  if (sysctlbyname("machdep.cpu.brand_string", name, &size, nullptr, 0) == 0) return name;
#elif defined(__linux__)
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
#endif
  return "CPU";
}

unsigned physicalCores() {
  const unsigned logical = std::max(1u, std::thread::hardware_concurrency());
#if defined(__APPLE__)
  int cores = 0;
  size_t size = sizeof cores;
  if (sysctlbyname("hw.perflevel0.physicalcpu", &cores, &size, nullptr, 0) == 0 && cores > 0) return unsigned(cores);
  if (sysctlbyname("hw.physicalcpu", &cores, &size, nullptr, 0) == 0 && cores > 0) return unsigned(cores);
#elif defined(__linux__)
  // Processors this process may use, counted once for each set of hardware threads that share a core.
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return logical;
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string siblings;
    cores.insert(std::getline(file, siblings) ? siblings : "cpu" + std::to_string(cpu));
  }
  if (!cores.empty()) return unsigned(cores.size());
#endif
  return logical;
}

}  // namespace mlxts
