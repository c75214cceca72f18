// Which module the command made of a text, so that a text that is compiled already needs no process.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace metal_sim {

/**
 * A file for each text, named by a hash of the text and of everything beside files that the command's answer depends
 * on. The command writes it: the module's path, then lines of STAMP PATH for each file that the answer depends on (the
 * compiler, the simulator's own sources), where `-` stamps a file that does not exist. An entry whose stamps are not
 * those of the files is no answer.
 */
class ModuleIndex {
 public:
  /** `folder` is the index's own; it is made if need be. */
  explicit ModuleIndex(std::string folder);
  /** Where the command leaves its answer; empty if the folder cannot be used. */
  std::string entry_of(const std::vector<std::string>& command, const std::string& text, const std::string& name,
                       uint32_t build) const;
  /** The module's path, or nothing. */
  static std::string find(const std::string& entry);

 private:
  std::string folder_;
};

}  // namespace metal_sim
