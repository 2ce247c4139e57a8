/* What JavaScript calls: one model, one call at a time. Addresses are of the module's memory. */
#include "mirlo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT(name) __attribute__((export_name(#name)))
enum { MAX_RANK = 64 };

extern const mirlo_code MODEL;

#ifdef __wasm_atomics__ /* the memory is shared: instances in workers help the one that runs the model */
void mirlo_parallel(void (*function)(void *, int32_t, int32_t), void *arguments, int32_t chunks, int32_t threads);
int32_t mirlo_pool_start(int32_t workers);
void mirlo_pool_reset(void);
void mirlo_pool_may_sleep(int32_t may);
void mirlo_pool_work(int32_t id);
int32_t mirlo_pool_sleeps(void);
#define PARALLEL mirlo_parallel

/* Prepare for so many helpers; the main thread of a browser may not sleep. */
EXPORT(start_pool) void start_pool(int helpers, int may_sleep) {
  mirlo_pool_reset();
  mirlo_pool_may_sleep(may_sleep);
  mirlo_pool_start(helpers);
}

/* Help for ever; JavaScript has set the stack of the instance. */
EXPORT(work) void work(int id) { mirlo_pool_work(id); }

EXPORT(sleeps) int sleeps(void) { return mirlo_pool_sleeps(); }
#else
#define PARALLEL NULL
#endif

static mirlo_model *model;
static mirlo_context *context;
static DLTensor *tensors; /* inputs, then outputs */
static int64_t (*dims)[MAX_RANK];
static void **made; /* the data of outputs, and of inputs, by their numbers */
static int *bound; /* by input: whether a state has its memory, in which an output may be, too */
static char problem[512];

EXPORT(allocate) void *allocate(size_t bytes) { return bytes < SIZE_MAX - 127 ? aligned_alloc(64, (bytes + 127) / 64 * 64) : NULL; }
EXPORT(release) void release(void *memory) { free(memory); }

EXPORT(message) const char *message(void) { return problem; }

/* Open the model with its weights, of which JavaScript keeps the memory. */
EXPORT(open_model) int open_model(const void *weights) {
  mirlo_options options = {.size = sizeof options, .weights = weights, .parallel = PARALLEL};
  const int count = MODEL.inputs + MODEL.outputs;
  int result = mirlo_create(&MODEL, &options, &model, problem, sizeof problem);
  if (result != MIRLO_OK) return result;
  tensors = calloc((size_t)count, sizeof *tensors);
  dims = calloc((size_t)count, sizeof *dims);
  made = calloc((size_t)count, sizeof *made);
  bound = calloc((size_t)count, sizeof *bound);
  for (int i = 0; i < count; ++i) tensors[i] = (DLTensor){NULL, {kDLCPU, 0}, 0, MODEL.values[i].dtype, dims[i], NULL, 0};
  return mirlo_context_create(model, &context);
}

/* Set the sizes of an input; return the address for its data. */
EXPORT(input) void *input(int number, int rank, size_t bytes) {
  tensors[number].ndim = rank;
  free(made[number]);
  made[number] = allocate(bytes);
  bound[number] = 0;
  tensors[number].data = made[number];
  return made[number];
}

/* Let an input have memory of a state; with `in_place`, the output that updates it has it too. */
EXPORT(bind) void bind(int number, int rank, void *data, int in_place) {
  tensors[number].ndim = rank;
  free(made[number]);
  made[number] = NULL;
  bound[number] = in_place;
  tensors[number].data = data;
}

/* Return the memory of an output, which is the caller's from now on. */
EXPORT(take) void *take(int number) {
  void *memory = made[number];
  made[number] = NULL;
  return memory;
}

EXPORT(dims_of) int64_t *dims_of(int number) { return dims[number]; }
EXPORT(rank_of) int rank_of(int number) { return tensors[number].ndim; }
EXPORT(data_of) void *data_of(int number) { return tensors[number].data; }

/* Return whether the sizes of an output depend on data. */
static int is_late(const DLTensor *tensor) {
  for (int i = 0; i < tensor->ndim; ++i)
    if (tensor->shape[i] < 0) return 1;
  return 0;
}

/* Let an output have the memory of the input that it updates; return whether it has the sizes of it. */
static int place_output(int number) {
  DLTensor *output = tensors + MODEL.inputs + number, *input = tensors + MODEL.values[MODEL.inputs + number].in_place - 1;
  free(made[MODEL.inputs + number]);
  made[MODEL.inputs + number] = NULL;
  output->data = input->data;
  return output->ndim == input->ndim && !memcmp(output->shape, input->shape, (size_t)input->ndim * sizeof *input->shape);
}

EXPORT(run_model) int run_model(void) {
  DLTensor *outputs = tensors + MODEL.inputs;
  int result;
  for (int i = 0; i < MODEL.outputs; ++i) outputs[i].shape = dims[MODEL.inputs + i], outputs[i].data = NULL;
  result = mirlo_shapes(context, tensors, outputs);
  for (int i = 0; result == MIRLO_OK && i < MODEL.outputs; ++i) {
    const mirlo_value *value = &MODEL.values[MODEL.inputs + i];
    if (is_late(outputs + i)) continue;
    if (value->in_place && bound[value->in_place - 1]) {
      if (place_output(i)) continue;
      snprintf(problem, sizeof problem, "'%s' has other sizes than '%s': the inputs are for other tokens than those of the state", value->name,
               MODEL.values[value->in_place - 1].name);
      return MIRLO_SIZES;
    }
    free(made[MODEL.inputs + i]);
    outputs[i].data = made[MODEL.inputs + i] = allocate(mirlo_bytes(outputs + i));
    if (!outputs[i].data) result = MIRLO_MEMORY;
  }
  if (result == MIRLO_OK) result = mirlo_run(context, tensors, outputs);
  if (result != MIRLO_OK) {
    strncpy(problem, mirlo_message(context), sizeof problem - 1);
    if (!problem[0]) strcpy(problem, "there is no memory for the model");
  }
  return result;
}
