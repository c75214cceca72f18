// The C interface: libraries, kernels, dispatches.
#include "engine.h"

#include <dlfcn.h>
#if defined(__linux__)
#include <link.h>
#endif
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "dispatch.h"
#include "module_index.h"

extern char** environ;

using namespace metal_sim;

struct metal_sim_library {
  void* handle;
  const Module* module;
  Image image;
  LineTable lines;
  std::mutex mutex;
};

struct metal_sim_result {
  std::unique_ptr<Dispatch> dispatch;
};

namespace {

char* copy_of(const std::string& text) { return strdup(text.c_str()); }

std::nullptr_t fail(char** error, const std::string& text) {
  if (error) *error = copy_of(text);
  return nullptr;
}

/** Runs a command and returns what it printed; a failure is what it printed as an error. */
bool output_of(const std::vector<std::string>& words, std::string& out) {
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  int ends[2];
  if (pipe(ends) != 0) return false;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  pid_t child;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  char bytes[4096];
  for (ssize_t n; !failed && ((n = read(ends[0], bytes, sizeof bytes)) > 0 || (n < 0 && errno == EINTR));)
    if (n > 0) out.append(bytes, size_t(n));
  close(ends[0]);
  if (failed) {
    out = words[0] + ": " + std::strerror(failed);
    return false;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/** The image that the loader has put at `base`. */
Image image_of(uintptr_t base) {
  Image image{base, base};
#if defined(__linux__)
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        Image& image = *static_cast<Image*>(found);
        if (info->dlpi_addr != image.begin) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (const auto& part = info->dlpi_phdr[i]; part.p_type == PT_LOAD)
            image.end = std::max<uintptr_t>(image.end, image.begin + part.p_vaddr + part.p_memsz);
        return 1;
      },
      &image);
#endif
  return image;
}

}  // namespace

metal_sim_library* metal_sim_open(const char* module_path, char** error) {
  void* handle = dlopen(module_path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return fail(error, dlerror());
  using Entry = const Module* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, "metal_sim_module"));
  const Module* module = entry ? entry() : nullptr;
  Dl_info info;
  if (!module || module->version != kModuleVersion || !dladdr(reinterpret_cast<void*>(entry), &info)) {
    dlclose(handle);
    return fail(error, std::string(module_path) + " is not a module of this version of metal-sim");
  }
  return new metal_sim_library{handle, module, image_of(uintptr_t(info.dli_fbase)), LineTable(module_path), {}};
}

metal_sim_library* metal_sim_open_source(const char* const* command, const char* text, const char* name, uint32_t build,
                                         const char* index, char** error) {
  std::vector<std::string> words;
  for (; *command; ++command) words.emplace_back(*command);
  std::string entry;
  if (index) {
    entry = ModuleIndex(index).entry_of(words, text, name, build);
    const std::string module = ModuleIndex::find(entry);
    if (metal_sim_library* known = module.empty() ? nullptr : metal_sim_open(module.c_str(), nullptr)) return known;
  }
  char path[] = "/tmp/metal-sim-XXXXXX";
  const int file = mkstemp(path);
  if (file < 0) return fail(error, std::string(path) + ": " + std::strerror(errno));
  FILE* out = fdopen(file, "w");
  std::fputs(text, out);
  std::fclose(out);
  for (const char* word : {"compile", static_cast<const char*>(path), "--name", name, "--print-module"})
    words.emplace_back(word);
  if (build == METAL_SIM_CHECK) words.emplace_back("--check");
  if (build == METAL_SIM_COVERAGE) words.emplace_back("--coverage");
  if (!entry.empty()) words.insert(words.end(), {"--index", entry});
  std::string printed;
  const bool compiled = output_of(words, printed);
  unlink(path);
  if (!compiled) return fail(error, printed);
  while (!printed.empty() && printed.back() == '\n') printed.pop_back();
  return metal_sim_open(printed.c_str(), error);
}

void metal_sim_close(metal_sim_library* library) {
  if (!library) return;
  dlclose(library->handle);
  delete library;
}

void metal_sim_free(char* text) { std::free(text); }

uint32_t metal_sim_kernel_count(const metal_sim_library* library) { return library->module->kernel_count; }

int metal_sim_kernel_at(const metal_sim_library* library, uint32_t kernel, metal_sim_kernel* out) {
  if (kernel >= library->module->kernel_count) return -1;
  const Kernel& k = library->module->kernels[kernel];
  *out = {k.name, k.argument_count, k.max_threads ? std::min(k.max_threads, kMaxThreads) : kMaxThreads, k.file, k.line};
  return 0;
}

int metal_sim_find_kernel(const metal_sim_library* library, const char* name) {
  for (uint32_t i = 0; i < library->module->kernel_count; ++i)
    if (std::strcmp(library->module->kernels[i].name, name) == 0) return int(i);
  return -1;
}

int metal_sim_argument_at(const metal_sim_library* library, uint32_t kernel, uint32_t argument,
                          metal_sim_argument* out) {
  if (kernel >= library->module->kernel_count || argument >= library->module->kernels[kernel].argument_count) return -1;
  const Argument& a = library->module->kernels[kernel].arguments[argument];
  *out = {a.name, uint32_t(a.kind), a.index,      uint32_t(a.space), a.read_only,
          a.type, a.type_bytes,     a.type_align, a.attribute};
  return 0;
}

metal_sim_result* metal_sim_run(metal_sim_library* library, const metal_sim_dispatch* request) try {
  std::lock_guard lock(library->mutex);
  auto result = std::make_unique<metal_sim_result>();
  result->dispatch = std::make_unique<Dispatch>(*library->module, library->lines, library->image, *request);
  result->dispatch->run();
  for (auto& report : result->dispatch->reports) {
    auto& view = report.view;
    view.kind = report.kind.c_str(), view.message = report.message.c_str(), view.argument = report.argument.c_str();
    view.place.file = report.file.c_str(), view.other_place.file = report.other_file.c_str();
  }
  return result.release();
} catch (const std::exception&) {
  return nullptr;
}

uint32_t metal_sim_report_count(const metal_sim_result* result) { return uint32_t(result->dispatch->reports.size()); }

const metal_sim_report* metal_sim_report_at(const metal_sim_result* result, uint32_t i) {
  return i < result->dispatch->reports.size() ? &result->dispatch->reports[i].view : nullptr;
}

double metal_sim_milliseconds(const metal_sim_result* result) { return result->dispatch->milliseconds; }

uint64_t metal_sim_switches(const metal_sim_result* result) { return result->dispatch->switches; }

uint32_t metal_sim_threadgroup_bytes(const metal_sim_result* result) { return result->dispatch->threadgroup_bytes; }

void metal_sim_result_free(metal_sim_result* result) { delete result; }

uint32_t metal_sim_covered_blocks(const metal_sim_library* library) {
  uint32_t count = 0;
  const unsigned char* hits = nullptr;
  library->module->blocks(&count, &hits);
  return uint32_t(std::count_if(hits, hits + count, [](unsigned char hit) { return hit != 0; }));
}

void metal_sim_coverage(metal_sim_library* library, void (*line)(void*, const char*, uint32_t, int), void* context) {
  uint32_t count = 0;
  const unsigned char* hits = nullptr;
  const CoverageBlock* blocks = library->module->blocks(&count, &hits);
  std::vector<std::pair<uintptr_t, bool>> starts;
  for (uint32_t i = 0; i < count; ++i) starts.emplace_back(blocks[i].pc - library->image.begin, hits[i] != 0);
  std::sort(starts.begin(), starts.end());
  std::map<std::pair<std::string, uint32_t>, bool> executed;
  for (size_t i = 0; i < starts.size(); ++i) {
    const uintptr_t end = i + 1 < starts.size() ? starts[i + 1].first : UINTPTR_MAX;
    for (const Place& place : library->lines.between(starts[i].first, end))
      // The rows of generated entry points name no file of the kernel's.
      if (!std::strstr(place.file, "metal-sim entries")) executed[{place.file, place.line}] |= starts[i].second;
  }
  for (const auto& [place, hit] : executed) line(context, place.first.c_str(), place.second, hit);
}
