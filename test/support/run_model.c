/* Reads the inputs of a model from a file (dims, then data, of each), runs it, writes the outputs the same way.
 * run_model INPUTS OUTPUTS THREADS CALLS [WEIGHTS]; linked with -DMODEL=mirlo_model_NAME, or given -DLIBRARY and -DNAME.
 * With -DOWN_THREADS models run on threads of this program, whose synchronization ThreadSanitizer sees, and not on the pool.
 * With -DFLTUSED code of Microsoft's conventions links with MinGW's C library.
 * With -DFUNCTIONS="FILE" the file adds functions and drivers.
 * With -DCOUNT_MALLOC all memory of the process is counted that the C library gives, not what the run time asks for. */
#include "mirlo.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef _WIN32
#include <malloc.h>
#define aligned_alloc(alignment, bytes) _aligned_malloc(bytes, alignment)
#define free_aligned _aligned_free
#else
#define free_aligned free
#endif
#ifndef CLOCK_THREAD_CPUTIME_ID /* WebAssembly has one thread */
#define CLOCK_THREAD_CPUTIME_ID CLOCK_MONOTONIC
#endif

#ifdef MODEL
extern const mirlo_code MODEL;
#endif
#ifdef FLTUSED
int _fltused = 1; /* Microsoft's C library has it, MinGW's has not */
#endif

#ifdef FUNCTIONS /* a file that defines further functions by name, as OWN_FUNCTIONS */
#include FUNCTIONS
#else
#define OWN_FUNCTIONS {"test.unused", row_sums, NULL, NULL}
#endif

static mirlo_model *model;
static DLTensor *inputs;
static int calls, allocations;

#ifdef COUNT_MALLOC /* the C library's own names for its functions */
extern void *__libc_malloc(size_t bytes), *__libc_calloc(size_t count, size_t bytes), *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
static void count_one(void) { __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED); }
void *malloc(size_t bytes) { return count_one(), __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) { return count_one(), __libc_calloc(count, bytes); }
void *realloc(void *memory, size_t bytes) { return count_one(), __libc_realloc(memory, bytes); }
void *aligned_alloc(size_t alignment, size_t bytes) { return count_one(), __libc_memalign(alignment, bytes); }
#else
static void *count_allocation(void *user, size_t bytes) {
  (void)user;
  __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
  return malloc(bytes);
}
static void release(void *user, void *memory) {
  (void)user;
  free(memory);
}
#endif

/* A packed function of the caller: the sums of rows; -1 in the first element makes it fail. */
static int row_sums(DLTensor **tensors, int64_t count) {
  const float *x = (const float *)((char *)tensors[0]->data + tensors[0]->byte_offset);
  float *y = (float *)((char *)tensors[1]->data + tensors[1]->byte_offset);
  if (count != 2 || x[0] == -1) return 7;
  for (int64_t i = 0; i < tensors[0]->shape[0]; ++i) {
    y[i] = 0;
    for (int64_t j = 0; j < tensors[0]->shape[1]; ++j) y[i] += x[i * tensors[0]->shape[1] + j];
  }
  return 0;
}

#ifdef OWN_THREADS
typedef struct {
  void (*function)(void *, int32_t, int32_t);
  void *arguments;
  int32_t first, step, chunks;
} share;

static void *run_share(void *given) {
  const share *own = given;
  for (int32_t i = own->first; i < own->chunks; i += own->step) own->function(own->arguments, i, own->chunks);
  return NULL;
}

static void run_parallel(void (*function)(void *, int32_t, int32_t), void *arguments, int32_t chunks, int32_t threads) {
  share shares[16];
  pthread_t made[16];
  int32_t count = threads < 16 ? threads : 16;
  for (int32_t i = 0; i < count; ++i) {
    share own = {function, arguments, i, count, chunks};
    shares[i] = own;
    if (i) pthread_create(&made[i], NULL, run_share, &shares[i]);
  }
  run_share(&shares[0]);
  for (int32_t i = 1; i < count; ++i) pthread_join(made[i], NULL);
}
#endif

static void require(int holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "%s\n", what);
  exit(1);
}

/* The exit code is the status of a call. */
static void require_ok(int status, mirlo_context *context) {
  if (status == MIRLO_OK) return;
  fprintf(stderr, "%s\n", mirlo_message(context));
  exit(status);
}

static DLTensor *make_outputs(mirlo_context *context) {
  const mirlo_code *code = mirlo_code_of(model);
  DLTensor *made = calloc((size_t)code->outputs, sizeof *made);
  for (int i = 0; i < code->outputs; ++i) made[i].shape = calloc((size_t)code->values[code->inputs + i].ndim + 1, sizeof(int64_t));
  require_ok(mirlo_shapes(context, inputs, made), context);
  for (int i = 0; i < code->outputs; ++i) {
    if (!code->values[code->inputs + i].late) made[i].data = aligned_alloc(64, (mirlo_bytes(&made[i]) / 64 + 1) * 64);
  }
  return made;
}

static void *work(void *result) {
  mirlo_context *context;
  require(mirlo_context_create(model, &context) == MIRLO_OK, "no context");
  const mirlo_code *code = mirlo_code_of(model);
  DLTensor *first = make_outputs(context), *again = make_outputs(context);
#ifdef IN_PLACE /* inputs that may be updated are in the memory of the first outputs; there is one call */
  DLTensor *own = calloc((size_t)code->inputs + 1, sizeof *own);
  int updated = 0;
  memcpy(own, inputs, (size_t)code->inputs * sizeof *own);
  for (int i = 0; i < code->outputs; ++i) {
    int source = code->values[code->inputs + i].in_place - 1;
    if (source < 0 || mirlo_bytes(&first[i]) != mirlo_bytes(&own[source])) continue;
    memcpy(first[i].data, own[source].data, mirlo_bytes(&own[source]));
    own[source].data = first[i].data;
    ++updated;
  }
  require(updated > 0, "nothing is in place");
  require(mirlo_run(context, own, first) == MIRLO_OK, mirlo_message(context));
  own[0].data = first[code->outputs - 1].data; /* an input that cannot be there */
  require(mirlo_run(context, own, first) == MIRLO_INPUT, "memory was shared");
  free(own);
#else
  require_ok(mirlo_run(context, inputs, first), context);
#endif
  for (int i = 0; i < code->outputs; ++i) { /* results of late sizes last until the next call */
    if (!code->values[code->inputs + i].late) continue;
    void *copy = malloc(mirlo_bytes(&first[i]) + 1);
    memcpy(copy, first[i].data, mirlo_bytes(&first[i]));
    first[i].data = copy;
  }
  int before = __atomic_load_n(&allocations, __ATOMIC_RELAXED);
  for (int call = 1; call < calls; ++call) {
    for (int i = 0; i < code->outputs; ++i) {
      if (code->values[code->inputs + i].late) again[i].data = NULL;
    }
    require(mirlo_run(context, inputs, again) == MIRLO_OK, mirlo_message(context));
    for (int i = 0; i < code->outputs; ++i) {
      require(mirlo_bytes(&first[i]) == mirlo_bytes(&again[i]) && !memcmp(first[i].data, again[i].data, mirlo_bytes(&first[i])), "another result");
    }
  }
  if (result) {
    require(__atomic_load_n(&allocations, __ATOMIC_RELAXED) == before, "a later call allocated memory");
    FILE *file = result;
    for (int i = 0; i < code->outputs; ++i) {
      fwrite(first[i].shape, sizeof(int64_t), (size_t)first[i].ndim, file);
      fwrite(first[i].data, 1, mirlo_bytes(&first[i]), file);
    }
  }
  for (int i = 0; i < code->outputs; ++i) {
    free(first[i].shape), free(again[i].shape);
    if (code->values[code->inputs + i].late) free(first[i].data);
    if (!code->values[code->inputs + i].late) free_aligned(first[i].data);
    if (!code->values[code->inputs + i].late) free_aligned(again[i].data);
  }
  free(first), free(again);
  mirlo_context_destroy(context);
  return NULL;
}

int main(int count, char **arguments) {
  char error[256] = "";
  require(count >= 5, "usage");
  mirlo_options options = {0};
  options.size = sizeof options;
#ifndef COUNT_MALLOC
  options.allocate = count_allocation;
  options.release = release;
#else
  void *volatile probe = malloc(1);
  free(probe);
  require(allocations > 0, "allocations are not counted");
#endif
  mirlo_function functions[] = {{"test.row_sums", row_sums, NULL, NULL}, OWN_FUNCTIONS};
  options.functions = functions;
  options.function_count = (int32_t)(sizeof functions / sizeof *functions);
#ifdef OWN_THREADS
  options.parallel = run_parallel;
#endif
  options.weights_path = count > 5 ? arguments[5] : NULL;
#ifdef MODEL
  int status = mirlo_create(&MODEL, &options, &model, error, sizeof error);
#else
  int status = mirlo_open(LIBRARY, NAME, &options, &model, error, sizeof error);
#endif
  if (status != MIRLO_OK) {
    fprintf(stderr, "status %d: %s\n", status, error);
    return 3;
  }
  const mirlo_code *code = mirlo_code_of(model);
  inputs = calloc((size_t)code->inputs + 1, sizeof *inputs);
  FILE *file = fopen(arguments[1], "rb");
  require(file != NULL, "no inputs");
  for (int i = 0; i < code->inputs; ++i) {
    DLTensor *input = &inputs[i];
    input->device.device_type = kDLCPU;
    input->dtype = code->values[i].dtype;
    input->ndim = code->values[i].ndim;
    input->shape = calloc((size_t)input->ndim + 1, sizeof(int64_t));
    require(fread(input->shape, sizeof(int64_t), (size_t)input->ndim, file) == (size_t)input->ndim, "no dims");
    input->data = aligned_alloc(64, (mirlo_bytes(input) / 64 + 1) * 64);
    require(fread(input->data, 1, mirlo_bytes(input), file) == mirlo_bytes(input), "no data");
  }
  fclose(file);
  calls = atoi(arguments[4]);
  int threads = atoi(arguments[3]);
  FILE *result = fopen(arguments[2], "wb");
  if (threads == 1) {
    work(result);
    if (calls > 100) { /* the time of a call, on this thread */
      mirlo_context *context;
      mirlo_context_create(model, &context);
      DLTensor *outputs = make_outputs(context);
      struct timespec from, to;
      double best = 1e30;
      for (int round = 0; round < 20; ++round) {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        for (int call = 0; call < calls; ++call) mirlo_run(context, inputs, outputs);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        double each = ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / calls;
        best = each < best ? each : best;
      }
      printf("%.0f\n", best);
    }
  } else {
    pthread_t *made = calloc((size_t)threads, sizeof *made);
    for (int i = 0; i < threads; ++i) pthread_create(&made[i], NULL, work, NULL);
    for (int i = 0; i < threads; ++i) pthread_join(made[i], NULL);
    free(made);
    calls = 1;
    work(result);
  }
  fclose(result);
  for (int i = 0; i < code->inputs; ++i) free_aligned(inputs[i].data), free(inputs[i].shape);
  free(inputs);
  mirlo_close(model);
  return 0;
}
