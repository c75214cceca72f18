#include "command_list.h"

#include <algorithm>

namespace mlxts {

namespace {

struct Reader {
  const uint32_t* words;
  size_t count, at = 0;
  uint32_t next() {
    if (at >= count) throw Failure("InvalidArgument", "command list: ends inside a command");
    return words[at++];
  }
  uint64_t next64() {
    const uint64_t low = next();
    return low | uint64_t(next()) << 32;
  }
};

Binding readBinding(Reader& r, const CommandList& list) {
  Binding b;
  b.memory = r.next();
  b.offset = r.next64();
  b.bytes = r.next64();
  if (b.memory == kAbsent) return b;
  if (b.memory >= list.memories.size()) throw Failure("InvalidArgument", "command list: unknown memory");
  const uint64_t size = list.memories[b.memory]->bytes();
  if (b.offset > size || b.bytes > size - b.offset)
    throw Failure("InvalidArgument", "command list: binding reaches past its memory");
  return b;
}

}  // namespace

std::shared_ptr<CommandList> decodeCommandList(const uint32_t* words, size_t count,
                                               std::vector<std::shared_ptr<Memory>> memories) {
  auto list = std::make_shared<CommandList>();
  list->memories = std::move(memories);
  for (Reader r{words, count}; r.at < count;) {
    Command c;
    c.kind = CommandKind(r.next());
    c.firstBinding = uint32_t(list->bindings.size());
    switch (c.kind) {
      case CommandKind::barrier:
        break;
      case CommandKind::fill:
        c.tag = r.next();
        c.fillByte = r.next();
        list->bindings.push_back(readBinding(r, *list));
        if (list->bindings.back().memory == kAbsent)
          throw Failure("InvalidArgument", "command list: fill without memory");
        break;
      case CommandKind::dispatch: {
        c.pipeline = r.next();
        c.tag = r.next();
        uint64_t total = 1;
        for (auto& axis : c.threadgroups) {
          axis = r.next();
          if (axis == 0 || axis > 0x7fffffff || total > (uint64_t(1) << 53) / axis)
            throw Failure("InvalidArgument", "command list: threadgroups out of range");
          total *= axis;
        }
        for (auto& axis : c.threadsPerThreadgroup) axis = r.next();
        c.scratchBytes = r.next();
        c.guards = r.next();
        if (r.next()) c.fault = list->faults++;
        c.written = r.next();
        c.early = r.next();
        c.bindings = r.next();
        c.paramWords = r.next();
        c.firstGuard = uint32_t(list->guards.size());
        for (uint32_t i = 0; i < c.guards; ++i) {
          const uint32_t at = r.next();
          if (at > c.scratchBytes || c.scratchBytes - at < kGuardBytes)
            throw Failure("InvalidArgument", "command list: guard outside the scratch");
          list->guards.push_back(at);
        }
        for (uint32_t i = 0; i < c.bindings; ++i) list->bindings.push_back(readBinding(r, *list));
        c.firstParam = uint32_t(list->params.size());
        for (uint32_t i = 0; i < c.paramWords; ++i) list->params.push_back(r.next());
        break;
      }
      default:
        throw Failure("InvalidArgument", "command list: unknown command");
    }
    if (c.kind != CommandKind::barrier) {
      if (c.tag >= count) throw Failure("InvalidArgument", "command list: tag out of range");
      list->tags = std::max(list->tags, c.tag + 1);
    }
    list->commands.push_back(c);
  }
  return list;
}

}  // namespace mlxts
