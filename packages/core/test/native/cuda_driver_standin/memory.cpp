#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "standin.h"

namespace standin {

namespace {

constexpr size_t kGap = 4096, kPoisoned = 1 << 20;

std::string text(Address address, size_t bytes) {
  return std::to_string(bytes) + " bytes at " + std::to_string(address);
}

}  // namespace

Block::~Block() { munmap(host, bytes); }

DeviceMemory& deviceMemory() {
  static auto* memory = new DeviceMemory();  // threads of a process that ends may still use it
  return *memory;
}

Address DeviceMemory::reserve(size_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes == 0 || bytes > settings().bytes - std::min<size_t>(used_, settings().bytes)) return 0;
  void* host = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (host == MAP_FAILED) return 0;
  const Address begin = next_;
  next_ += (bytes + 2 * kGap - 1) / kGap * kGap;
  used_ += bytes;
  auto block = std::make_shared<Block>();
  block->begin = begin;
  block->bytes = bytes;
  block->host = static_cast<uint8_t*>(host);
  blocks_[begin] = std::move(block);
  return begin;
}

void DeviceMemory::begin(Address address) {
  std::lock_guard lock(mutex_);
  auto& block = *blocks_.at(address);
  // Of large blocks only the ends: poison takes memory of the host.
  const size_t some = std::min(block.bytes, kPoisoned);
  std::memset(block.host, 0xa5, some);
  std::memset(block.host + block.bytes - some, 0xa5, some);
  block.ready = true;
}

bool DeviceMemory::give(Address address) {
  std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second->given) return false;
  found->second->given = true;
  used_ -= found->second->bytes;
  return true;
}

void DeviceMemory::end(Address address) {
  std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return;
  if (found->second.use_count() > 1) fault("memory is freed while it is used: " + text(address, found->second->bytes));
  gone_[address] = found->second->bytes;
  blocks_.erase(found);
}

std::shared_ptr<Block> DeviceMemory::find(Address address) const {
  const auto after = blocks_.upper_bound(address);
  return after == blocks_.begin() ? nullptr : std::prev(after)->second;
}

Reached DeviceMemory::reach(Address address, size_t bytes, const std::string& who) {
  std::lock_guard lock(mutex_);
  const auto block = find(address);
  const bool inside =
      block && address - block->begin < block->bytes && bytes <= block->bytes - (address - block->begin);
  if (inside && block->ready) return {block, block->host + (address - block->begin)};
  const auto after = gone_.upper_bound(address);
  const bool freed = !inside && after != gone_.begin() && address - std::prev(after)->first < std::prev(after)->second;
  fault(who + " uses " + text(address, bytes) +
        (inside  ? ", before they are allocated"
         : freed ? ", after they were freed"
                 : ", which are not all of one block"));
  throw Stopped{kIllegalAddress};
}

size_t DeviceMemory::used() const {
  std::lock_guard lock(mutex_);
  return used_;
}

size_t DeviceMemory::live() const {
  std::lock_guard lock(mutex_);
  return blocks_.size();
}

void DeviceMemory::clear() {
  std::lock_guard lock(mutex_);
  blocks_.clear();
  gone_.clear();
  used_ = 0;
}

}  // namespace standin
