/* Opens the modules of its arguments, all at once, and runs the kernel of each. */
#include <stdio.h>
#include <stdlib.h>

#include "../native/engine.h"

int main(int argc, char** argv) {
  metal_sim_library** libraries = calloc((size_t)argc, sizeof *libraries);
  char* error = NULL;
  for (int i = 1; i < argc; ++i)
    if (!(libraries[i] = metal_sim_open(argv[i], &error))) return printf("%d: %s\n", i, error), 1;
  float value = 0;
  for (int i = 1; i < argc; ++i) {
    const metal_sim_binding binding = {0, &value, sizeof value};
    metal_sim_dispatch dispatch = {0};
    for (int axis = 0; axis < 3; ++axis) dispatch.threadgroups[axis] = dispatch.threads_per_threadgroup[axis] = 1;
    dispatch.buffers = &binding, dispatch.buffer_count = 1;
    metal_sim_result_free(metal_sim_run(libraries[i], &dispatch));
  }
  printf("%d modules, %g\n", argc - 1, value);
  for (int i = 1; i < argc; ++i) metal_sim_close(libraries[i]);
  free(libraries);
  return 0;
}
