#include "line_table.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <tuple>

namespace metal_sim {

namespace {

/** Reads little-endian fields and never past the end. */
struct Reader {
  const uint8_t* at;
  const uint8_t* end;
  template <typename T>
  T get() {
    T value{};
    if (size_t(end - at) >= sizeof(T)) std::memcpy(&value, at, sizeof(T));
    at += std::min<size_t>(sizeof(T), size_t(end - at));
    return value;
  }
  uint64_t uleb() {
    uint64_t value = 0;
    for (int shift = 0; at < end; shift += 7) {
      const uint8_t byte = *at++;
      if (shift < 64) value |= uint64_t(byte & 0x7f) << shift;
      if (!(byte & 0x80)) break;
    }
    return value;
  }
  int64_t sleb() {
    uint64_t value = 0;
    int shift = 0;
    uint8_t byte = 0;
    while (at < end) {
      byte = *at++;
      if (shift < 64) value |= uint64_t(byte & 0x7f) << shift;
      shift += 7;
      if (!(byte & 0x80)) break;
    }
    if (shift < 64 && (byte & 0x40)) value |= ~uint64_t(0) << shift;
    return int64_t(value);
  }
  std::string text() {
    const uint8_t* from = at;
    while (at < end && *at) ++at;
    std::string s(from, at);
    if (at < end) ++at;
    return s;
  }
};

/** The section's bytes of a little-endian 64-bit ELF file, or nothing. */
std::pair<const uint8_t*, const uint8_t*> section(const std::vector<uint8_t>& elf, const char* name) {
  const auto field = [&](uint64_t at, int bytes) {
    uint64_t value = 0;
    if (at + uint64_t(bytes) <= elf.size()) std::memcpy(&value, elf.data() + at, size_t(bytes));
    return value;
  };
  if (elf.size() < 64 || std::memcmp(elf.data(), "\177ELF\2\1", 6) != 0) return {nullptr, nullptr};
  const uint64_t headers = field(0x28, 8), size = field(0x3a, 2), count = field(0x3c, 2), names = field(0x3e, 2);
  const uint64_t strings = field(headers + names * size + 0x18, 8);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t header = headers + i * size, label = strings + field(header, 4);
    if (label + std::strlen(name) + 1 > elf.size() ||
        std::strcmp(reinterpret_cast<const char*>(&elf[label]), name) != 0)
      continue;
    const uint64_t offset = field(header + 0x18, 8), bytes = field(header + 0x20, 8);
    if (offset + bytes <= elf.size()) return {elf.data() + offset, elf.data() + offset + bytes};
  }
  return {nullptr, nullptr};
}

}  // namespace

LineTable::LineTable(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<uint8_t> elf(std::istreambuf_iterator<char>(in), {});
  auto [at, end] = section(elf, ".debug_line");
  while (at && end - at > 4) {
    uint32_t length;
    std::memcpy(&length, at, 4);
    const uint8_t* unit = at + 4;
    at = length <= uint64_t(end - unit) ? unit + length : end;
    read_unit(unit, at);
  }
  // The end of one sequence may be the start of another.
  std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
    return std::tuple(a.address, !a.end, a.order) < std::tuple(b.address, !b.end, b.order);
  });
}

void LineTable::read_unit(const uint8_t* begin, const uint8_t* end) {
  Reader in{begin, end};
  if (in.get<uint16_t>() != 4) return;
  const uint32_t header_bytes = in.get<uint32_t>();
  const uint8_t* program = header_bytes <= uint64_t(end - in.at) ? in.at + header_bytes : end;
  const uint8_t min_bytes = in.get<uint8_t>();
  in.get<uint8_t>();  // operations per instruction
  in.get<uint8_t>();  // statement by default
  const int8_t line_base = in.get<int8_t>();
  const uint8_t line_range = std::max<uint8_t>(1, in.get<uint8_t>());
  const uint8_t first_special = in.get<uint8_t>();
  std::vector<uint8_t> lengths(first_special);
  for (uint8_t i = 1; i < first_special; ++i) lengths[i] = in.get<uint8_t>();
  std::vector<std::string> folders;
  while (in.at < program) {
    folders.push_back(in.text());
    if (folders.back().empty()) break;
  }
  const uint32_t first_file = uint32_t(files_.size());
  while (in.at < program) {
    std::string name = in.text();
    if (name.empty()) break;
    const uint64_t folder = in.uleb();
    in.uleb(), in.uleb();
    files_.push_back(folder >= 1 && folder <= folders.size() ? folders[folder - 1] + "/" + name : name);
  }
  const uint32_t file_count = uint32_t(files_.size()) - first_file;
  in.at = program;
  uint64_t address = 0, file = 1;
  int64_t line = 1;
  const auto reset = [&] { address = 0, file = 1, line = 1; };
  const auto emit = [&](bool last) {
    if (file >= 1 && file <= file_count)
      rows_.push_back({address, first_file + uint32_t(file) - 1, uint32_t(std::max<int64_t>(line, 0)),
                       uint32_t(rows_.size()), last});
  };
  while (in.at < in.end) {
    const uint8_t code = in.get<uint8_t>();
    if (code >= first_special) {
      address += uint64_t((code - first_special) / line_range) * min_bytes;
      line += line_base + (code - first_special) % line_range;
      emit(false);
      continue;
    }
    switch (code) {
      case 0: {
        const uint64_t bytes = in.uleb();
        const uint8_t* next = bytes <= uint64_t(in.end - in.at) ? in.at + bytes : in.end;
        switch (in.get<uint8_t>()) {
          case 1:
            emit(true);
            reset();
            break;
          case 2:
            address = in.get<uint64_t>();
            break;
          default:
            break;
        }
        in.at = next;
        break;
      }
      case 1:
        emit(false);
        break;
      case 2:
        address += in.uleb() * min_bytes;
        break;
      case 3:
        line += in.sleb();
        break;
      case 4:
        file = in.uleb();
        break;
      case 8:
        address += uint64_t((255 - first_special) / line_range) * min_bytes;
        break;
      case 9:
        address += in.get<uint16_t>();
        break;
      default:
        for (int i = 0; i < lengths[code]; ++i) in.uleb();
    }
  }
}

Place LineTable::find(uint64_t address) const {
  auto row = std::upper_bound(rows_.begin(), rows_.end(), address,
                              [](uint64_t wanted, const Row& r) { return wanted < r.address; });
  // Code that merges several lines has none of its own; the row before it is the nearest.
  while (row != rows_.begin()) {
    --row;
    if (row->end) break;
    if (row->line != 0) return {file(row->file), row->line};
  }
  return {};
}

std::vector<Place> LineTable::between(uint64_t begin, uint64_t end) const {
  std::vector<Place> places;
  auto row = std::lower_bound(rows_.begin(), rows_.end(), begin,
                              [](const Row& r, uint64_t wanted) { return r.address < wanted; });
  if (row == rows_.end() || row->address != begin)
    if (const Place first = find(begin); first.line) places.push_back(first);
  for (; row != rows_.end() && row->address < end; ++row)
    if (!row->end && row->line) places.push_back({file(row->file), row->line});
  return places;
}

}  // namespace metal_sim
