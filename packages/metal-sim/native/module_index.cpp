#include "module_index.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace metal_sim {

namespace {

/** FNV-1a in 128 bits, over parts with their lengths. */
class Hash {
 public:
  void add(const std::string& part) {
    for (size_t rest = part.size(), i = 0; i < sizeof rest; ++i, rest >>= 8) byte(uint8_t(rest));
    for (const char c : part) byte(uint8_t(c));
  }
  std::string hex() const {
    char text[33];
    std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(value_ >> 64),
                  static_cast<unsigned long long>(value_));
    return text;
  }

 private:
  __extension__ using Wide = unsigned __int128;
  void byte(uint8_t of) { value_ = (value_ ^ of) * kPrime; }
  static constexpr Wide kPrime = Wide(1) << 88 | 0x13b;
  Wide value_ = Wide(0x6c62272e07bb0142ull) << 64 | 0x62b821756295c58dull;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string machine() {
#if defined(__x86_64__)
  std::string found = "x86-64";
  for (const bool has : {__builtin_cpu_supports("avx2"), __builtin_cpu_supports("fma"), __builtin_cpu_supports("f16c")})
    found += has ? '1' : '0';
  return found;
#else
  return "";
#endif
}

/** As the command writes it: inode, size, and the times of the last change of contents and of anything, in ns. */
std::string stamp_of(const char* path) {
  struct stat s;
  if (stat(path, &s) != 0) return "-";
#ifdef __APPLE__
  const auto &changed = s.st_mtimespec, &touched = s.st_ctimespec;
#else
  const auto &changed = s.st_mtim, &touched = s.st_ctim;
#endif
  const auto ns = [](const timespec& t) { return std::to_string(int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec); };
  return std::to_string(s.st_ino) + '.' + std::to_string(s.st_size) + '.' + ns(changed) + '.' + ns(touched);
}

}  // namespace

ModuleIndex::ModuleIndex(std::string folder) : folder_(std::move(folder)) {
  for (size_t at = 1; at != std::string::npos;) {
    at = folder_.find('/', at + 1);
    mkdir(folder_.substr(0, at).c_str(), 0700);
  }
  // Code is loaded by what stands there: a folder that somebody else has put in the way is not used.
  struct stat s;
  if (stat(folder_.c_str(), &s) != 0 || !S_ISDIR(s.st_mode) || s.st_uid != getuid()) folder_.clear();
}

std::string ModuleIndex::entry_of(const std::vector<std::string>& command, const std::string& text,
                                  const std::string& name, uint32_t build) const {
  if (folder_.empty()) return "";
  Hash hash;
  for (const auto& part : {text, name, std::to_string(build), machine(), variable("PATH"), variable("MLXTS_CLANG")})
    hash.add(part);
  for (const auto& word : command) hash.add(word);
  return folder_ + '/' + hash.hex();
}

std::string ModuleIndex::find(const std::string& entry) {
  std::ifstream in(entry);
  std::string module;
  if (entry.empty() || !std::getline(in, module)) return "";
  size_t stamps = 0;
  for (std::string line; std::getline(in, line); ++stamps) {
    const size_t space = line.find(' ');
    if (space == std::string::npos || stamp_of(line.c_str() + space + 1) != line.substr(0, space)) return "";
  }
  if (stamps == 0 || access(module.c_str(), R_OK) != 0) return "";
  // What is used stays when the rest is pruned.
  for (const auto& used : {entry, module}) utimensat(AT_FDCWD, used.c_str(), nullptr, 0);
  return module;
}

}  // namespace metal_sim
