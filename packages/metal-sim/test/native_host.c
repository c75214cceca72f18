/* A host that knows engine.h only: opens text, looks at a kernel, runs it, prints what it found. */
#include <stdio.h>

#include "../native/engine.h"

static const char kText[] =
    "#include <metal_stdlib>\n"
    "using namespace metal;\n"
    "kernel void twice(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],\n"
    "                  uint i [[thread_position_in_grid]]) {\n"
    "  out[i] = 2 * in[i];\n"
    "}\n";

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const char* const command[] = {argv[1], argv[2], NULL};
  char* error = NULL;
  if (metal_sim_open_source(command, "nonsense", "nonsense.metal", METAL_SIM_FAST, NULL, &error)) return 3;
  printf("%.50s\n", error);
  metal_sim_free(error);
  metal_sim_library* library = metal_sim_open_source(command, kText, "twice.metal", METAL_SIM_CHECK, argv[3], &error);
  if (!library) return fputs(error, stdout), 4;
  const int found = metal_sim_find_kernel(library, "twice");
  metal_sim_kernel kernel;
  metal_sim_kernel_at(library, (uint32_t)found, &kernel);
  printf("%s: %u arguments, %s:%u, none called thrice: %d\n", kernel.name, kernel.argument_count, kernel.file,
         kernel.line, metal_sim_find_kernel(library, "thrice"));
  metal_sim_argument argument;
  metal_sim_argument_at(library, (uint32_t)found, 0, &argument);
  printf("%s %s %u %u\n", argument.type, argument.name, argument.index, argument.read_only);
  float values[2][40];
  for (int i = 0; i < 40; ++i) values[0][i] = (float)i, values[1][i] = -1;
  const metal_sim_binding bindings[] = {{0, values[0], 33 * sizeof(float)}, {1, values[1], sizeof values[1]}};
  metal_sim_dispatch dispatch = {0};
  dispatch.kernel = (uint32_t)found;
  dispatch.threads[0] = 34, dispatch.threads[1] = dispatch.threads[2] = 1;
  dispatch.threads_per_threadgroup[0] = 32;
  dispatch.threads_per_threadgroup[1] = dispatch.threads_per_threadgroup[2] = 1;
  dispatch.buffers = bindings, dispatch.buffer_count = 2;
  for (uint32_t in_place = 0; in_place < 2; ++in_place) {
    dispatch.in_place = in_place;
    metal_sim_result* result = metal_sim_run(library, &dispatch);
    printf("%g %g %g\n", values[1][0], values[1][32], values[1][34]);
    for (uint32_t i = 0; i < metal_sim_report_count(result); ++i)
      printf("%s %s\n", metal_sim_report_at(result, i)->kind, metal_sim_report_at(result, i)->message);
    metal_sim_result_free(result);
  }
  metal_sim_close(library);
  return 0;
}
