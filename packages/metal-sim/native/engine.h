/*
 * The MSL engine as a plain C library: runs kernels that metal-sim compiled from `.metal` text, and reports what they
 * do wrong. Nothing here throws, aborts or ends the process: a kernel that faults ends its dispatch.
 *
 * A host that has only `.metal` text gets a module by running `metal-sim compile FILE [--check | --coverage]`, which
 * prints the module's path (and caches it by content); metal_sim_open_source does that and opens it. Whoever simulates
 * a Metal device needs nothing else: open, find a kernel, look at its arguments, run it.
 *
 * Thread safety: different libraries may be used from different threads; one library runs one dispatch at a time (a
 * second waits).
 */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define METAL_SIM_API __attribute__((visibility("default")))

typedef struct metal_sim_library metal_sim_library;
typedef struct metal_sim_result metal_sim_result;

enum metal_sim_space { METAL_SIM_DEVICE, METAL_SIM_CONSTANT, METAL_SIM_THREADGROUP, METAL_SIM_THREAD };
enum metal_sim_argument_kind { METAL_SIM_BUFFER, METAL_SIM_THREADGROUP_MEMORY, METAL_SIM_BUILTIN };
enum metal_sim_schedule { METAL_SIM_FORWARD, METAL_SIM_REVERSE, METAL_SIM_RANDOM };

typedef struct {
  const char* name;
  uint32_t kind;  /* metal_sim_argument_kind */
  uint32_t index; /* of [[buffer(n)]] or [[threadgroup(n)]] */
  uint32_t space; /* metal_sim_space */
  uint32_t read_only;
  const char* type; /* what the pointer or reference names */
  uint32_t type_bytes;
  uint32_t type_align;
  const char* attribute;
} metal_sim_argument;

typedef struct {
  const char* name;
  uint32_t argument_count;
  uint32_t max_threads; /* per threadgroup */
  const char* file;
  uint32_t line;
} metal_sim_kernel;

/* Opens a compiled module. On failure returns NULL and, if `error` is not NULL, a text to be freed by metal_sim_free.
 */
METAL_SIM_API metal_sim_library* metal_sim_open(const char* module_path, char** error);

enum metal_sim_build { METAL_SIM_FAST, METAL_SIM_CHECK, METAL_SIM_COVERAGE };

/*
 * Compiles `.metal` text with the metal-sim command and opens the module. `command` is the command's words, ended by
 * NULL, as {"node", "…/metal-sim.mjs", NULL}; `name` is what reports call the text. `index` is a folder that remembers
 * which module a text has become, so that the next time, in any process, no command is run; NULL: it is always run.
 */
METAL_SIM_API metal_sim_library* metal_sim_open_source(const char* const* command, const char* text, const char* name,
                                                       uint32_t build, const char* index, char** error);
METAL_SIM_API void metal_sim_close(metal_sim_library*);
METAL_SIM_API void metal_sim_free(char*);

METAL_SIM_API uint32_t metal_sim_kernel_count(const metal_sim_library*);
METAL_SIM_API int metal_sim_kernel_at(const metal_sim_library*, uint32_t kernel, metal_sim_kernel* out);
/* Index of the kernel of this name, or -1. */
METAL_SIM_API int metal_sim_find_kernel(const metal_sim_library*, const char* name);
METAL_SIM_API int metal_sim_argument_at(const metal_sim_library*, uint32_t kernel, uint32_t argument,
                                        metal_sim_argument* out);

typedef struct {
  uint32_t index;
  void* data;
  uint64_t length;
} metal_sim_binding;

typedef struct {
  uint32_t index;
  uint32_t length;
} metal_sim_threadgroup_memory;

typedef struct {
  uint32_t kernel;
  /* Either threadgroups, or (dispatchThreads) threads with smaller threadgroups at the edges; the other is 0, 0, 0. */
  uint32_t threadgroups[3];
  uint32_t threads[3];
  uint32_t threads_per_threadgroup[3];
  /* Bytes given by setBytes are bindings too. Bindings may overlap. */
  const metal_sim_binding* buffers;
  uint32_t buffer_count;
  const metal_sim_threadgroup_memory* threadgroup_memory;
  uint32_t threadgroup_memory_count;
  uint32_t schedule; /* metal_sim_schedule */
  uint64_t seed;     /* of METAL_SIM_RANDOM */
  /* OS threads over threadgroups; check mode uses one. 0 is one. Results do not depend on it. */
  uint32_t workers;
  /* 0: none. A loop that never ends is interrupted, by SIGURG to the threads that this library has started. */
  uint32_t timeout_ms;
  /*
   * 0: buffers are copied between guard zones for the dispatch and back after it. 1: the kernel works on the caller's
   * memory; accesses out of bounds are then only found in check mode.
   */
  uint32_t in_place;
} metal_sim_dispatch;

typedef struct {
  const char* file; /* "" if unknown */
  uint32_t line;    /* 0 if unknown */
} metal_sim_place;

typedef struct {
  uint32_t threadgroup[3];
  uint32_t thread; /* index in the threadgroup */
  uint32_t simdgroup;
} metal_sim_who;

/* One finding. `kind` is one of the words in README.md, as "race" or "out-of-bounds". */
typedef struct {
  const char* kind;
  const char* message; /* one sentence with everything below in it */
  metal_sim_place place;
  metal_sim_who who;
  const char* argument; /* name of the argument or variable, or "" */
  int64_t byte_offset;
  uint32_t bytes;
  uint32_t is_write;
  metal_sim_place other_place; /* of the other access of a race; line 0 if there is none */
  metal_sim_who other;
  uint32_t other_is_write;
  uint64_t count; /* findings at the same places */
} metal_sim_report;

/* Runs a dispatch to its end or to its first fatal fault. NULL only when memory is short. */
METAL_SIM_API metal_sim_result* metal_sim_run(metal_sim_library*, const metal_sim_dispatch*);
METAL_SIM_API uint32_t metal_sim_report_count(const metal_sim_result*);
METAL_SIM_API const metal_sim_report* metal_sim_report_at(const metal_sim_result*, uint32_t);
METAL_SIM_API double metal_sim_milliseconds(const metal_sim_result*);
/* Switches between simulated threads, for measurements. */
METAL_SIM_API uint64_t metal_sim_switches(const metal_sim_result*);
/* Largest threadgroup memory used by a threadgroup, arguments and variables. */
METAL_SIM_API uint32_t metal_sim_threadgroup_bytes(const metal_sim_result*);
METAL_SIM_API void metal_sim_result_free(metal_sim_result*);

/* Blocks of a coverage build that any dispatch so far has executed. */
METAL_SIM_API uint32_t metal_sim_covered_blocks(const metal_sim_library*);
/* Calls `line` for each line with code of a coverage build: whether any dispatch so far has executed it. */
METAL_SIM_API void metal_sim_coverage(metal_sim_library*,
                                      void (*line)(void* context, const char* file, uint32_t line, int executed),
                                      void* context);

#ifdef __cplusplus
}
#endif
