#include "cpu_info.h"

#include <fstream>
#include <set>
#include <thread>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include "device.h"

namespace mlxts {

#if defined(__x86_64__)
namespace {

struct Registers {
  unsigned a, b, c, d;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r{};
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
  return r;
}

// Register sets that the operating system saves and restores (XCR0).
uint32_t savedRegisters() {
  uint32_t low, high;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

constexpr bool all(uint32_t value, uint32_t bits) { return (value & bits) == bits; }

// Whether this process may use the tile registers: Linux gives them only to processes that ask.
bool mayUseTiles() {
#if defined(__linux__)
  constexpr int kAskForRegisters = 0x1023, kTiles = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kAskForRegisters, kTiles) == 0;
#else
  return false;
#endif
}

}  // namespace
#endif

std::vector<std::string> cpuLevels() {
#if defined(__x86_64__)
  std::vector<std::string> levels;
  const auto basic = cpuid(1, 0), extended = cpuid(7, 0), more = cpuid(7, 1);
  constexpr uint32_t kYmm = 0x6, kZmm = 0xe6;  // XCR0: SSE and AVX; with the mask and 512-bit registers
  constexpr uint32_t kTiles = 0x60000;         // the tile registers and their configuration
  const uint32_t saved = all(basic.c, bit_OSXSAVE) ? savedRegisters() : 0;
  const bool avx2 = all(saved, kYmm) && all(basic.c, bit_AVX | bit_FMA | bit_F16C | bit_MOVBE) &&
                    all(extended.b, bit_AVX2 | bit_BMI | bit_BMI2) && all(cpuid(0x80000001, 0).c, bit_LZCNT);
  const bool avx512 = avx2 && all(saved, kZmm) &&
                      all(extended.b, bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL) &&
                      all(extended.c, bit_AVX512VBMI | bit_AVX512VNNI) && all(more.a, bit_AVX512BF16);
  constexpr uint32_t kAmx = 1u << 22 | 1u << 24 | 1u << 25;  // tiles, and products of their bf16 and bytes
  if (avx512 && all(saved, kTiles) && all(extended.d, kAmx) && mayUseTiles()) levels.push_back("amx");
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
