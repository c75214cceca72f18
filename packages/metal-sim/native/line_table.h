// Program counter → file and line, from a module's own DWARF line table (version 4, as the driver asks the compiler
// for).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace metal_sim {

struct Place {
  const char* file = "";
  uint32_t line = 0;
};

class LineTable {
 public:
  struct Row {
    uint64_t address;
    uint32_t file;
    uint32_t line;
    /** Of the table, among rows at one address. */
    uint32_t order;
    bool end;
  };

  /** Reads the ELF file; a table that cannot be read is empty. */
  explicit LineTable(const std::string& path);
  /** `address` is relative to where the module is loaded. */
  Place find(uint64_t address) const;
  /** Places of the code in [begin, end). */
  std::vector<Place> between(uint64_t begin, uint64_t end) const;

 private:
  const char* file(uint32_t index) const { return files_[index].c_str(); }
  void read_unit(const uint8_t* at, const uint8_t* end);

  std::vector<std::string> files_;
  std::vector<Row> rows_;
};

}  // namespace metal_sim
