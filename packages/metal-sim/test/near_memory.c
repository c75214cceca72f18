/* Runs a kernel in check mode on the caller's memory, which lies near the engine's own and near the module's. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "../native/engine.h"

static float* memory_near(const void* what) {
  char* const hint = (char*)(((size_t)what & ~(size_t)4095) + (8 << 20));
  void* memory = mmap(hint, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED || labs((char*)memory - (const char*)what) > 32 << 20 ? NULL : memory;
}

int main(int argc, char** argv) {
  char* error = NULL;
  metal_sim_library* library = argc < 2 ? NULL : metal_sim_open(argv[1], &error);
  if (!library) return puts(error ? error : "no module"), 1;
  metal_sim_kernel kernel;
  metal_sim_kernel_at(library, 0, &kernel);
  const void* const places[] = {(const void*)&metal_sim_run, kernel.file};
  for (int i = 0; i < 2; ++i) {
    float* const near = memory_near(places[i]);
    if (!near) return puts("no memory there"), 1;
    const metal_sim_binding binding = {0, near, 64 * sizeof *near};
    metal_sim_dispatch dispatch = {0};
    for (int axis = 0; axis < 3; ++axis) dispatch.threadgroups[axis] = dispatch.threads_per_threadgroup[axis] = 1;
    dispatch.threads_per_threadgroup[0] = 64;
    dispatch.buffers = &binding, dispatch.buffer_count = 1, dispatch.in_place = 1;
    metal_sim_result* result = metal_sim_run(library, &dispatch);
    printf("%g, %u reports\n", near[63], metal_sim_report_count(result));
    for (uint32_t k = 0; k < metal_sim_report_count(result); ++k) puts(metal_sim_report_at(result, k)->message);
    metal_sim_result_free(result);
  }
  metal_sim_close(library);
  return 0;
}
