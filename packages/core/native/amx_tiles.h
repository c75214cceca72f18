// The tile registers of AMX, for kernels of level `amx`.
#pragma once
#if defined(__AMX_TILE__)
#include <immintrin.h>
#include <stdint.h>

namespace mlxts {

// While one of these lives, all eight tiles of this thread are full ones. Their numbers are literals in intrinsics:
// 0 … 7. Configuring takes about a hundred cycles: once for each call of a kernel.
class AmxTiles {
 public:
  static constexpr int kRows = 16;      // of a full tile
  static constexpr int kRowBytes = 64;  // 16 sums, 32 bf16 or 64 bytes

  AmxTiles() {
    struct alignas(64) {
      uint8_t palette = 1, startRow = 0, reserved[14] = {};
      uint16_t rowBytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    static_assert(sizeof config == 64);
    for (int tile = 0; tile < 8; ++tile) {
      config.rowBytes[tile] = kRowBytes;
      config.rows[tile] = kRows;
    }
    written();
    _tile_loadconfig(&config);
  }
  // Tiles in use would be saved at every switch of threads.
  ~AmxTiles() { _tile_release(); }
  // Between stores to memory and the loads of tiles from it: GCC does not know that these read memory, and moves or
  // drops the stores.
  static void written() { asm volatile("" ::: "memory"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

}  // namespace mlxts
#endif
