// Rows of a matrix one after the other, or as a list names them.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace mlxts {

struct RowOrder {
  const uint32_t* list = nullptr;  // null: row i is number i

  size_t at(size_t i) const { return list ? list[i] : i; }
};

}  // namespace mlxts
