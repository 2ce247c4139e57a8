/* libraries LIBRARY NAME: opens a model and calls it with zeros; prints microseconds to open it and of the first call, then
 * nanoseconds of a call without the model's code. */
#include "mirlo.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at); /* other programs do not count */
  return (double)at.tv_sec * 1e6 + (double)at.tv_nsec / 1e3;
}

static void nothing(void **tensors, void **params, void *arena, uint64_t *profile) { (void)tensors, (void)params, (void)arena, (void)profile; }

static double least(mirlo_context *context, DLTensor *inputs, DLTensor *outputs, int rounds, int calls) {
  double best = 1e30, start, each;
  int i, j;
  for (i = 0; i < rounds; ++i) {
    start = now();
    for (j = 0; j < calls; ++j) mirlo_run(context, inputs, outputs);
    each = (now() - start) / calls;
    if (each < best) best = each;
  }
  return best;
}

int main(int count, char **arguments) {
  char error[256];
  mirlo_model *model, *empty;
  mirlo_context *context;
  mirlo_code code;
  DLTensor *inputs, *outputs;
  double start = now(), opened, first;
  int i, d;
  if (count < 3 || mirlo_open(arguments[1], arguments[2], NULL, &model, error, sizeof error) || mirlo_context_create(model, &context)) {
    fprintf(stderr, "%s\n", count < 3 ? "usage" : error);
    return 1;
  }
  opened = now() - start;
  code = *mirlo_code_of(model);
  inputs = (DLTensor *)calloc((size_t)code.inputs + 1, sizeof *inputs);
  outputs = (DLTensor *)calloc((size_t)code.outputs + 1, sizeof *outputs);
  for (i = 0; i < code.inputs + code.outputs; ++i) {
    const mirlo_value *value = &code.values[i];
    DLTensor *tensor = i < code.inputs ? &inputs[i] : &outputs[i - code.inputs];
    tensor->device.device_type = kDLCPU;
    tensor->dtype = value->dtype;
    tensor->ndim = value->ndim;
    tensor->shape = (int64_t *)calloc((size_t)value->ndim + 1, sizeof(int64_t));
    for (d = 0; d < value->ndim; ++d) tensor->shape[d] = value->dims[d] < 0 ? 1 : value->dims[d];
    if (i < code.inputs) tensor->data = calloc(mirlo_bytes(tensor) + 64, 1);
  }
  if (mirlo_shapes(context, inputs, outputs)) return fprintf(stderr, "%s\n", mirlo_message(context)), 1;
  for (i = 0; i < code.outputs; ++i) {
    outputs[i].data = malloc(mirlo_bytes(&outputs[i]) + 64);
  }
  start = now();
  if (mirlo_run(context, inputs, outputs)) return fprintf(stderr, "%s\n", mirlo_message(context)), 1;
  first = now() - start;
  printf("%.1f %.1f ", opened, first);
  code.entry = nothing;
  code.dynamic = 0;
  if (mirlo_create(&code, NULL, &empty, error, sizeof error) == MIRLO_FILE) { /* of weights beside: nothing reads them */
    code.weights_bytes = 0;
    if (mirlo_create(&code, NULL, &empty, error, sizeof error)) return 1;
  }
  if (mirlo_context_create(empty, &context)) return 1;
  printf("%.1f\n", least(context, inputs, outputs, 20, 20000) * 1e3);
  return 0;
}
