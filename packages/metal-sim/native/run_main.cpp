// metal-sim-run: a process of its own for kernels. Reads a job, one instruction a line, from standard input; works on
// the files it names; prints one JSON object a line.
//
//   module PATH                     opens a compiled module
//   buffer ID PATH                  maps a file, read and written in place
//   bind INDEX ID OFFSET LENGTH     binds a stretch of a buffer for the dispatches that follow
//   unbind                          forgets all bindings and threadgroup lengths
//   memory INDEX BYTES              length of [[threadgroup(INDEX)]]
//   grid threadgroups|threads X Y Z
//   group X Y Z
//   schedule forward|reverse|random SEED
//   workers N
//   timeout MS
//   run KERNEL                      dispatches, and prints {"milliseconds":…,"switches":…,"reports":[…]}
//   coverage                        prints {"coverage":[["file",line,executed],…]}
//   reflect                         prints {"kernels":[…]}
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "engine.h"

namespace {

struct Mapping {
  char* data;
  uint64_t length;
};

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text)
    if (c == '"' || c == '\\') {
      out += '\\', out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  return out + '"';
}

std::string json_of(const metal_sim_place& place) {
  return place.line ? "{\"file\":" + quoted(place.file) + ",\"line\":" + std::to_string(place.line) + "}" : "null";
}

std::string json_of(const metal_sim_who& who) {
  return "{\"threadgroup\":[" + std::to_string(who.threadgroup[0]) + "," + std::to_string(who.threadgroup[1]) + "," +
         std::to_string(who.threadgroup[2]) + "],\"thread\":" + std::to_string(who.thread) +
         ",\"simdgroup\":" + std::to_string(who.simdgroup) + "}";
}

std::string json_of(const metal_sim_report& r) {
  std::string out = "{\"kind\":" + quoted(r.kind) + ",\"message\":" + quoted(r.message) +
                    ",\"place\":" + json_of(r.place) + ",\"who\":" + json_of(r.who) +
                    ",\"count\":" + std::to_string(r.count);
  if (*r.argument)
    out += ",\"argument\":" + quoted(r.argument) + ",\"byteOffset\":" + std::to_string(r.byte_offset) +
           ",\"bytes\":" + std::to_string(r.bytes) + ",\"isWrite\":" + (r.is_write ? "true" : "false");
  if (r.other_place.line) out += ",\"otherPlace\":" + json_of(r.other_place) + ",\"other\":" + json_of(r.other);
  return out + "}";
}

std::string reflection(const metal_sim_library* library) {
  static const char* const kKinds[] = {"buffer", "threadgroup", "builtin"};
  static const char* const kSpaces[] = {"device", "constant", "threadgroup", "thread"};
  std::string out = "{\"kernels\":[";
  for (uint32_t i = 0; i < metal_sim_kernel_count(library); ++i) {
    metal_sim_kernel kernel;
    metal_sim_kernel_at(library, i, &kernel);
    out += std::string(i ? "," : "") + "{\"name\":" + quoted(kernel.name) + ",\"file\":" + quoted(kernel.file) +
           ",\"line\":" + std::to_string(kernel.line) + ",\"maxThreads\":" + std::to_string(kernel.max_threads) +
           ",\"arguments\":[";
    for (uint32_t k = 0; k < kernel.argument_count; ++k) {
      metal_sim_argument a;
      metal_sim_argument_at(library, i, k, &a);
      out += std::string(k ? "," : "") + "{\"name\":" + quoted(a.name) + ",\"kind\":\"" + kKinds[a.kind] +
             "\",\"attribute\":" + quoted(a.attribute) + ",\"type\":" + quoted(a.type);
      if (a.kind != METAL_SIM_BUILTIN)
        out += ",\"index\":" + std::to_string(a.index) + ",\"space\":\"" + kSpaces[a.space] +
               "\",\"readOnly\":" + (a.read_only ? "true" : "false");
      out += ",\"typeBytes\":" + std::to_string(a.type_bytes) + ",\"typeAlign\":" + std::to_string(a.type_align) + "}";
    }
    out += "]}";
  }
  return out + "]}";
}

int fail(const std::string& text) {
  std::cout << "{\"error\":" << quoted(text) << "}" << std::endl;
  return 2;
}

}  // namespace

int main() {
  metal_sim_library* library = nullptr;
  std::map<std::string, Mapping> buffers;
  std::vector<metal_sim_binding> bindings;
  std::vector<metal_sim_threadgroup_memory> memory;
  metal_sim_dispatch dispatch{};
  dispatch.workers = 1;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::string word;
    in >> word;
    const auto rest = [&] {
      std::string text;
      std::getline(in >> std::ws, text);
      return text;
    };
    if (word == "module") {
      char* error = nullptr;
      metal_sim_close(library);
      library = metal_sim_open(rest().c_str(), &error);
      if (!library) return fail(error ? error : "the module cannot be opened");
    } else if (word == "buffer") {
      std::string id;
      in >> id;
      const std::string path = rest();
      const int file = open(path.c_str(), O_RDWR);
      struct stat status{};
      if (file < 0 || fstat(file, &status) != 0) return fail(path + " cannot be opened");
      void* data = mmap(nullptr, size_t(status.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      close(file);
      if (data == MAP_FAILED) return fail(path + " cannot be mapped");
      buffers[id] = {static_cast<char*>(data), uint64_t(status.st_size)};
    } else if (word == "bind") {
      metal_sim_binding binding{};
      std::string id;
      uint64_t offset = 0;
      in >> binding.index >> id >> offset >> binding.length;
      const auto found = buffers.find(id);
      if (found == buffers.end() || offset > found->second.length || binding.length > found->second.length - offset)
        return fail("bad binding: " + line);
      binding.data = found->second.data + offset;
      bindings.push_back(binding);
    } else if (word == "unbind") {
      bindings.clear(), memory.clear();
    } else if (word == "memory") {
      metal_sim_threadgroup_memory one{};
      in >> one.index >> one.length;
      memory.push_back(one);
    } else if (word == "grid") {
      std::string unit;
      in >> unit;
      uint32_t(&used)[3] = unit == "threads" ? dispatch.threads : dispatch.threadgroups;
      for (auto& n : dispatch.threads) n = 0;
      for (auto& n : dispatch.threadgroups) n = 0;
      in >> used[0] >> used[1] >> used[2];
    } else if (word == "group") {
      for (auto& n : dispatch.threads_per_threadgroup) in >> n;
    } else if (word == "schedule") {
      std::string name;
      in >> name >> dispatch.seed;
      dispatch.schedule = name == "reverse"  ? METAL_SIM_REVERSE
                          : name == "random" ? METAL_SIM_RANDOM
                                             : METAL_SIM_FORWARD;
    } else if (word == "workers") {
      in >> dispatch.workers;
    } else if (word == "timeout") {
      in >> dispatch.timeout_ms;
    } else if (word == "reflect" && library) {
      std::cout << reflection(library) << std::endl;
    } else if (word == "coverage" && library) {
      std::string out;
      metal_sim_coverage(
          library,
          [](void* context, const char* file, uint32_t at, int executed) {
            auto& text = *static_cast<std::string*>(context);
            text += (text.empty() ? "[" : ",[") + quoted(file) + "," + std::to_string(at) +
                    (executed ? ",true]" : ",false]");
          },
          &out);
      std::cout << "{\"coverage\":[" << out << "]}" << std::endl;
    } else if (word == "run" && library) {
      const std::string name = rest();
      const int kernel = metal_sim_find_kernel(library, name.c_str());
      if (kernel < 0) return fail("no kernel is called `" + name + "`");
      dispatch.kernel = uint32_t(kernel);
      dispatch.buffers = bindings.data(), dispatch.buffer_count = uint32_t(bindings.size());
      dispatch.threadgroup_memory = memory.data(), dispatch.threadgroup_memory_count = uint32_t(memory.size());
      metal_sim_result* result = metal_sim_run(library, &dispatch);
      if (!result) return fail("memory is short");
      std::cout << "{\"milliseconds\":" << metal_sim_milliseconds(result)
                << ",\"switches\":" << metal_sim_switches(result)
                << ",\"threadgroupBytes\":" << metal_sim_threadgroup_bytes(result) << ",\"reports\":[";
      for (uint32_t i = 0; i < metal_sim_report_count(result); ++i)
        std::cout << (i ? "," : "") << json_of(*metal_sim_report_at(result, i));
      std::cout << "]}" << std::endl;
      metal_sim_result_free(result);
    } else {
      return fail("bad instruction: " + line);
    }
  }
  metal_sim_close(library);
  return 0;
}
