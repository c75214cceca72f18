#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace mlxts {

namespace {

constexpr uint64_t kHugePage = 2u << 20;
constexpr uint64_t kAlignment = 64;
#if defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kFromHeap = 64u << 20;
#else
constexpr uint64_t kFromHeap = 64u << 10;
#endif

uint64_t roundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

File::~File() {
  if (descriptor >= 0) close(descriptor);
}

File openPlainFile(const std::string& path, uint64_t bytes, int& error) {
  File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe must not block
  struct stat info;
  if (!file || fstat(file.descriptor, &info) != 0)
    error = errno;
  else if (!S_ISREG(info.st_mode))
    error = S_ISDIR(info.st_mode) ? EISDIR : ENODEV;
  // The caller checked a header against `bytes`; a file that has shrunk since must not be read past its end.
  else if (uint64_t(info.st_size) < bytes)
    error = ESTALE;
  else
    return file;
  return File();
}

Memory::Memory(void* data, uint64_t bytes, uint64_t span, bool readOnly, std::shared_ptr<MemoryCounters> counters,
               std::function<void()> release)
    : data_(static_cast<uint8_t*>(data)),
      bytes_(bytes),
      span_(span),
      readOnly_(readOnly),
      counters_(std::move(counters)),
      release_(std::move(release)) {
  counters_->liveBuffers.fetch_add(1);
  const uint64_t live = counters_->liveBytes.fetch_add(bytes) + bytes;
  uint64_t peak = counters_->peakBytes.load();
  while (peak < live && !counters_->peakBytes.compare_exchange_weak(peak, live)) {
  }
}

Memory::~Memory() {
  counters_->liveBuffers.fetch_sub(1);
  counters_->liveBytes.fetch_sub(bytes_);
  attachment.reset();
  release_();
}

void Memory::read(uint64_t offset, void* to, uint64_t bytes) const {
  if (bytes == 0) return;
  if (access)
    access->read(reinterpret_cast<uint64_t>(data_) + offset, to, bytes);
  else
    memmove(to, data_ + offset, bytes);
}

void Memory::write(uint64_t offset, const void* from, uint64_t bytes) const {
  if (bytes == 0) return;
  if (access)
    access->write(reinterpret_cast<uint64_t>(data_) + offset, from, bytes);
  else
    memmove(data_ + offset, from, bytes);
}

std::shared_ptr<Memory> Memory::allocate(uint64_t bytes, std::shared_ptr<MemoryCounters> counters) {
  const uint64_t page = uint64_t(sysconf(_SC_PAGESIZE));
  // A small block comes from the heap: mapping one, touching it and unmapping it takes five times as long. So do all that
  // may be cleared where a sanitizer runs: it knows the last byte of these. The largest are mapped, since clearing them
  // would touch all of their pages.
  if (void* block = nullptr; bytes <= kFromHeap && posix_memalign(&block, kAlignment, bytes) == 0) {
    memset(block, 0, bytes);
    return std::shared_ptr<Memory>(
        new Memory(block, bytes, bytes, false, std::move(counters), [block] { free(block); }));
  }
  // Large blocks start on a huge page, so that kernels which read several streams at once miss the TLB less often.
  const uint64_t align = bytes >= kHugePage ? kHugePage : page;
  const uint64_t span = roundUp(bytes, page) + (align > page ? align : 0);
  if (span < bytes) return nullptr;
  void* base = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  void* data = reinterpret_cast<void*>(roundUp(reinterpret_cast<uint64_t>(base), align));
#ifdef MADV_HUGEPAGE
  if (align == kHugePage) madvise(data, roundUp(bytes, page), MADV_HUGEPAGE);
#endif
  return std::shared_ptr<Memory>(
      new Memory(data, bytes, roundUp(bytes, page), false, std::move(counters), [base, span] { munmap(base, span); }));
}

std::shared_ptr<Memory> Memory::map(const std::string& path, uint64_t bytes, uint64_t alignment,
                                    std::shared_ptr<MemoryCounters> counters, int& error) {
  const File file = openPlainFile(path, bytes, error);
  if (!file) return nullptr;
  // `alignment` may be coarser than the system's pages: the file is then mapped into a larger reservation of zeros.
  // Large files start on a huge page, for the same reason as large blocks.
  const uint64_t page = uint64_t(sysconf(_SC_PAGESIZE)), unit = std::max(page, alignment);
  const uint64_t align = bytes >= kHugePage ? std::max(unit, kHugePage) : unit;
  const uint64_t span = roundUp(bytes, unit), reserved = span + align - page;
  void* base = mmap(nullptr, reserved, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* data = MAP_FAILED;
  if (base != MAP_FAILED)
    data = mmap(reinterpret_cast<void*>(roundUp(reinterpret_cast<uint64_t>(base), align)), bytes, PROT_READ,
                MAP_SHARED | MAP_FIXED, file.descriptor, 0);
  error = data == MAP_FAILED ? errno : 0;
#ifdef MADV_HUGEPAGE
  // Linux reads the file in huge pages where its file system has them, and does nothing elsewhere.
  if (data != MAP_FAILED && bytes >= kHugePage) madvise(data, bytes, MADV_HUGEPAGE);
#endif
  if (data == MAP_FAILED && base != MAP_FAILED) munmap(base, reserved);
  if (data == MAP_FAILED) return nullptr;
  return std::shared_ptr<Memory>(
      new Memory(data, bytes, span, true, std::move(counters), [base, reserved] { munmap(base, reserved); }));
}

std::shared_ptr<Memory> Memory::wrap(void* data, uint64_t bytes, bool readOnly,
                                     std::shared_ptr<MemoryCounters> counters, std::function<void()> release) {
  return std::shared_ptr<Memory>(new Memory(data, bytes, bytes, readOnly, std::move(counters), std::move(release)));
}

}  // namespace mlxts
