// One threadgroup: one expert.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "gathered_rows.h"
#include "moe_pages.params.h"

using namespace mlxts;

namespace {

// Linux starts to read no more than a device's read-ahead at a time; this is its usual size.
constexpr uintptr_t kPiece = 128 << 10;

// The memory of an expert.
struct Range {
  uintptr_t begin, end;
};

uintptr_t page_size() { return uintptr_t(sysconf(_SC_PAGESIZE)); }

uintptr_t down(uintptr_t address) { return address / page_size() * page_size(); }
uintptr_t up(uintptr_t address) { return down(address + page_size() - 1); }

// An advice that the system refuses is none: there is no error.
void fetch(Range r) {
  for (uintptr_t at = down(r.begin); at < r.end; at += kPiece)
    madvise(reinterpret_cast<void*>(at), std::min(kPiece, up(r.end) - at), MADV_WILLNEED);
}

// Whole pages alone: the others hold parts of neighbors.
void evict([[maybe_unused]] Range r) {
#ifdef MADV_PAGEOUT
  const uintptr_t begin = up(r.begin), end = down(r.end);
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_PAGEOUT);
#endif
}

uint32_t resident_bytes(Range r) {
#ifdef __APPLE__
  char pages[1024];
#else
  unsigned char pages[1024];
#endif
  uint32_t bytes = 0;
  for (uintptr_t at = down(r.begin); at < r.end; at += sizeof pages * page_size()) {
    const size_t count = std::min<size_t>((up(r.end) - at) / page_size(), sizeof pages);
    if (mincore(reinterpret_cast<void*>(at), count * page_size(), pages) != 0) return 0;
    for (size_t i = 0; i < count; ++i) {
      const uintptr_t page = at + i * page_size();
      if (pages[i] & 1) bytes += uint32_t(std::min(r.end, page + page_size()) - std::max(r.begin, page));
    }
  }
  return bytes;
}

int32_t moe_pages(const Launch& l) {
  const auto& p = l.args<MoePagesParams>();
  const Indices starts = l.indices(MOE_PAGES_STARTS);
  const uint32_t* chosen = l.buffer<const uint32_t>(MOE_PAGES_CHOSEN);
  uint32_t* resident = l.buffer<uint32_t>(MOE_PAGES_RESIDENT);
  for (uint64_t e = l.begin; e < l.end; ++e) {
    uint64_t offset = e * p.expertBytes;
    if (starts) {
      const uint32_t start = uint32_t(starts.read(e));
      if (start == kElsewhere) {
        if (resident) resident[e] = 0;
        continue;
      }
      offset = uint64_t(start) * p.unit;
      if (start > p.elements || p.elements - start < p.expertBytes / p.unit)
        return l.fail(MOE_PAGES_FAULT_START, start, uint32_t(e));
    }
    const bool meant = chosen[e] != 0;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(l.buffer<const char>(MOE_PAGES_STACK)) + offset;
    const Range range = {begin, begin + p.expertBytes};
    if (resident) resident[e] = meant ? resident_bytes(range) : 0;
    if (meant) p.evicts ? evict(range) : fetch(range);
  }
  return 0;
}

}  // namespace

MLXTS_KERNEL(moe_pages_u32, moe_pages)
