// The simulated GPU: command by command, dispatches between two barriers in the order of the schedule.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "objects.h"

namespace metal_framework {

namespace {

constexpr uint64_t kCopyLimit = 4u << 20;  // bindings up to this size in all are run between guard zones

std::string run(const Work& work, const Settings& settings, NSInteger& code) {
  work.pipeline.check("a pipeline");
  auto* pipeline = static_cast<SimPipeline*>(work.pipeline.object);
  std::vector<metal_sim_binding> bindings;
  std::vector<metal_sim_threadgroup_memory> memory;
  uint64_t total = 0;
  bool foreign = false;  // pages that may be read-only, and many
  for (uint32_t i = 0; i < work.slots.size(); ++i) {
    const auto& slot = work.slots[i];
    if (!slot.bytes.empty())
      bindings.push_back({i, const_cast<uint8_t*>(slot.bytes.data()), slot.bytes.size()});
    else if (slot.buffer.object) {
      slot.buffer.check("a buffer");
      auto* buffer = static_cast<SimBuffer*>(slot.buffer.object);
      bindings.push_back({i, static_cast<uint8_t*>(buffer->data_) + slot.offset, buffer->length_ - slot.offset});
      total += buffer->length_ - slot.offset;
      foreign = foreign || !buffer->mapped_;
    }
  }
  for (uint32_t i = 0; i < work.threadgroupBytes.size(); ++i)
    if (work.threadgroupBytes[i]) memory.push_back({i, uint32_t(work.threadgroupBytes[i])});
  metal_sim_dispatch dispatch{};
  dispatch.kernel = pipeline->kernel_;
  const auto copy = [](uint32_t* to, MTLSize from) {
    to[0] = uint32_t(from.width);
    to[1] = uint32_t(from.height);
    to[2] = uint32_t(from.depth);
  };
  copy(dispatch.threadgroups, work.threadgroups);
  copy(dispatch.threads_per_threadgroup, work.threads);
  dispatch.buffers = bindings.data();
  dispatch.buffer_count = uint32_t(bindings.size());
  dispatch.threadgroup_memory = memory.data();
  dispatch.threadgroup_memory_count = uint32_t(memory.size());
  dispatch.schedule = settings.schedule;
  dispatch.seed = settings.seed;
  dispatch.workers = settings.build == METAL_SIM_CHECK ? 1 : std::max(1u, std::thread::hardware_concurrency());
  dispatch.in_place = foreign || total > kCopyLimit;
  metal_sim_result* result = metal_sim_run(pipeline->library_->engine_, &dispatch);
  if (!result) {
    code = MTLCommandBufferErrorOutOfMemory;
    return "no memory for a dispatch";
  }
  std::string text;
  for (uint32_t i = 0; i < metal_sim_report_count(result); ++i) {
    const auto* report = metal_sim_report_at(result, i);
    if (code == 0)
      code =
          strcmp(report->kind, "out-of-bounds") == 0 ? MTLCommandBufferErrorPageFault : MTLCommandBufferErrorInternal;
    text += (text.empty() ? "" : "\n") + std::string(report->message);
  }
  metal_sim_result_free(result);
  return text;
}

void fill(const Work& work) {
  work.buffer.check("a buffer");
  auto* buffer = static_cast<SimBuffer*>(work.buffer.object);
  auto* begin = static_cast<uint8_t*>(buffer->data_) + work.range.location;
  const NSUInteger pages = work.range.length / kPage * kPage;
  // Pages of zeros take no memory.
  const bool zeros = buffer->mapped_ && work.value == 0 && work.range.location % kPage == 0 && pages > kCopyLimit;
  const NSUInteger done = zeros && madvise(begin, pages, MADV_DONTNEED) == 0 ? pages : 0;
  memset(begin + done, work.value, work.range.length - done);
}

struct Fault {
  const char* name;
  NSInteger code;
  const char* text;
};
// What Apple's driver says.
constexpr Fault kFaults[] = {
    {"internal", MTLCommandBufferErrorInternal, "Internal Error (0000000e:Internal Error)"},
    {"victim", MTLCommandBufferErrorInternal,
     "Discarded (victim of GPU error/recovery) (00000005:kIOGPUCommandBufferCallbackErrorInnocentVictim)"},
    {"impacting", MTLCommandBufferErrorInternal,
     "Impacting Interactivity (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)"},
    {"hang", MTLCommandBufferErrorInternal, "Caused GPU Hang Error (00000003:kIOGPUCommandBufferCallbackErrorHang)"},
    {"timeout", MTLCommandBufferErrorTimeout,
     "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)"},
    {"pageFault", MTLCommandBufferErrorPageFault,
     "Caused GPU Address Fault Error (0000000b:kIOGPUCommandBufferCallbackErrorPageFault)"},
    {"accessRevoked", MTLCommandBufferErrorAccessRevoked,
     "Ignored (for causing prior/excessive GPU errors) (00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)"},
    {"notPermitted", MTLCommandBufferErrorNotPermitted,
     "Insufficient Permission (to submit GPU work from background) "
     "(00000006:kIOGPUCommandBufferCallbackErrorBackgroundExecutionNotPermitted)"},
    {"outOfMemory", MTLCommandBufferErrorOutOfMemory,
     "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"},
    {"invalidResource", MTLCommandBufferErrorInvalidResource,
     "Invalid Resource (00000009:kIOGPUCommandBufferCallbackErrorInvalidResource)"},
    {"memoryless", MTLCommandBufferErrorMemoryless, "Memoryless render target memory ran out"},
    {"deviceRemoved", MTLCommandBufferErrorDeviceRemoved, "The device was removed"},
    {"stackOverflow", MTLCommandBufferErrorStackOverflow, "A kernel ran out of stack"},
};

}  // namespace

void Borrowed::check(const char* what) const {
  if (!alive(object, serial)) broken(std::string(what) + " is released while the GPU uses it");
}

Ending requestedEnding(const std::string& name) {
  for (const auto& fault : kFaults)
    if (name == fault.name) return {fault.code, fault.text};
  broken("MLXTS_METAL_SIM_FAULT asks for an unknown failure: " + name);
}

namespace {

Ending perform(const std::vector<Work>& work, const Settings& settings) {
  std::mt19937_64 random(settings.seed);
  for (size_t i = 0; i < work.size();) {
    if (work[i].kind != Work::Kind::dispatch) {
      if (work[i].kind == Work::Kind::fill) fill(work[i]);
      ++i;
      continue;
    }
    std::vector<const Work*> group;
    for (; i < work.size() && work[i].kind == Work::Kind::dispatch; ++i) group.push_back(&work[i]);
    if (settings.schedule == METAL_SIM_REVERSE) std::reverse(group.begin(), group.end());
    if (settings.schedule == METAL_SIM_RANDOM) std::shuffle(group.begin(), group.end(), random);
    for (const auto* dispatch : group) {
      NSInteger code = 0;
      if (const auto text = run(*dispatch, settings, code); code != 0) return {code, "metal-sim: " + text};
    }
  }
  return {};
}

}  // namespace

Ending execute(const std::vector<Work>& work, const Settings& settings) {
  const Ending ending = perform(work, settings);
  if (settings.build == METAL_SIM_COVERAGE) saveCoverage();
  return ending;
}

metal_sim_library* openLibrary(const std::string& text, uint32_t build, std::string& log) {
  static std::mutex mutex;
  // Compiled once for a process: tests open many devices.
  static auto& opened = *new std::map<std::pair<std::string, uint32_t>, metal_sim_library*>;
  std::lock_guard lock(mutex);
  auto& library = opened[{text, build}];
  if (library) return library;
  const char* given = getenv("MLXTS_METAL_SIM_COMMAND");
  const char* const command[] = {"node", given ? given : METAL_SIM_COMMAND, nullptr};
  // Reports name files by the text's own #line markers.
  char* error = nullptr;
  library = metal_sim_open_source(command, text.c_str(), "program_source", build, METAL_SIM_INDEX, &error);
  if (!library) log = error ? error : "no reason given";
  if (library && build == METAL_SIM_COVERAGE) coverLibrary(library, text);
  metal_sim_free(error);
  return library;
}

}  // namespace metal_framework
