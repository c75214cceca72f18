// Generated from the declaration of head_attention; `npm run gen` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#include "cpu_kernel.h"
#endif

#define HEAD_ATTENTION_Q 0  // read
#define HEAD_ATTENTION_Q_PE 1  // read
#define HEAD_ATTENTION_KEYS 2  // read
#define HEAD_ATTENTION_VALUES 3  // read
#define HEAD_ATTENTION_K_PE_CACHE 4  // read
#define HEAD_ATTENTION_LENGTHS 5  // read
#define HEAD_ATTENTION_RUNNING 6  // readWrite?
#define HEAD_ATTENTION_OUT 7  // write
#define HEAD_ATTENTION_PARAMS 8
#define HEAD_ATTENTION_FAULT 9
#define HEAD_ATTENTION_HAS_RUNNING 64u
#define HEAD_ATTENTION_FAULT_LENGTH 1
#define HEAD_ATTENTION_FAULT_NEW_ROWS 2
#define HEAD_ATTENTION_SOFTMAX_SIZE 8
#define HEAD_ATTENTION_TILE_COLUMNS 128
#ifdef __METAL_VERSION__
#define HEAD_ATTENTION_THREADS 256
#define HEAD_ATTENTION_TILE_ROWS 128
#define HEAD_ATTENTION_TILE_KEYS 32
#define HEAD_ATTENTION_TILE_ROW_BYTES 256
#else
#define HEAD_ATTENTION_PANEL_ROWS 6
#define HEAD_ATTENTION_PANEL_COLUMNS 64
#define HEAD_ATTENTION_BLOCK_KEYS 64
#define HEAD_ATTENTION_TILE_KEYS 256
#define HEAD_ATTENTION_TILE_QUERIES 32
#endif

struct HeadAttentionParams {
  uint32_t batch;
  uint32_t tokens;
  uint32_t heads;
  uint32_t firstHead;
  uint32_t blockHeads;
  uint32_t nope;
  uint32_t rope;
  uint32_t v;
  uint32_t qDim;
  uint32_t firstRow;
  uint32_t rows;
  uint32_t runningStride;
  uint32_t capacity;
  uint32_t ropeStride;
  uint32_t sequenceStride;
  float scale;
  uint32_t causal;
  uint32_t outDtype;
  uint32_t present;  // a bit for each buffer
#ifdef __METAL_VERSION__
  uint32_t scratch[2];  // byte offsets
#else
  uint32_t groupRows;
  uint32_t keyWidth;
  uint32_t width;
  uint32_t scratch[8];  // byte offsets
#endif
};
#ifdef __METAL_VERSION__
static_assert(sizeof(HeadAttentionParams) == 84, "HeadAttentionParams must match the declaration of head_attention");
#else
static_assert(sizeof(HeadAttentionParams) == 120, "HeadAttentionParams must match the declaration of head_attention");
#endif
#ifdef __METAL_VERSION__
struct HeadAttentionScratch {
  threadgroup uint* length;
  threadgroup uchar* tiles;
};
inline HeadAttentionScratch scratch_of(threadgroup uchar* memory, constant HeadAttentionParams& p) {
  return {
      (threadgroup uint*)(memory + p.scratch[0]),
      (threadgroup uchar*)(memory + p.scratch[1]),
  };
}
#else
struct HeadAttentionScratch {
  float* queries;
  float* sums;
  float* maxima;
  float* denominators;
  float* keys;
  float* values;
  float* scores;
  uint16_t* weights;
};
inline HeadAttentionScratch scratch_of(const MlxtsCpuLaunch& l, const HeadAttentionParams& p) {
  unsigned char* memory = static_cast<unsigned char*>(l.scratch);
  return {
      reinterpret_cast<float*>(memory + p.scratch[0]),
      reinterpret_cast<float*>(memory + p.scratch[1]),
      reinterpret_cast<float*>(memory + p.scratch[2]),
      reinterpret_cast<float*>(memory + p.scratch[3]),
      reinterpret_cast<float*>(memory + p.scratch[4]),
      reinterpret_cast<float*>(memory + p.scratch[5]),
      reinterpret_cast<float*>(memory + p.scratch[6]),
      reinterpret_cast<uint16_t*>(memory + p.scratch[7]),
  };
}
#endif
