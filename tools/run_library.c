/* Runs a model once: reads its inputs from a file (dims, then data, of each) and writes its outputs the same way.
 * run_library INPUTS OUTPUTS; linked with -DMODEL=mirlo_model_NAME, or given -DLIBRARY and -DNAME. */
#include "mirlo.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef MODEL
extern const mirlo_code MODEL;
#endif

static int fail(const char *what) {
  fprintf(stderr, "%s\n", what);
  return 1;
}

static int read_input(FILE *file, const mirlo_value *value, DLTensor *tensor) {
  tensor->device.device_type = kDLCPU;
  tensor->dtype = value->dtype;
  tensor->ndim = value->ndim;
  tensor->shape = (int64_t *)calloc((size_t)value->ndim + 1, sizeof(int64_t));
  if (fread(tensor->shape, sizeof(int64_t), (size_t)value->ndim, file) != (size_t)value->ndim) return 1;
  tensor->data = malloc(mirlo_bytes(tensor) + 1);
  return fread(tensor->data, 1, mirlo_bytes(tensor), file) != mirlo_bytes(tensor);
}

int main(int count, char **arguments) {
  mirlo_options options = {sizeof options};
  mirlo_model *model;
  mirlo_context *context;
  const mirlo_code *code;
  char error[256] = "";
  DLTensor *inputs, *outputs;
  FILE *file;
  int status, i;
  if (count < 3) return fail("run_library INPUTS OUTPUTS");
#ifdef MODEL
  status = mirlo_create(&MODEL, &options, &model, error, sizeof error);
#else
  status = mirlo_open(LIBRARY, NAME, &options, &model, error, sizeof error);
#endif
  if (status != MIRLO_OK || mirlo_context_create(model, &context) != MIRLO_OK) return fail(error);
  code = mirlo_code_of(model);
  inputs = (DLTensor *)calloc((size_t)code->inputs + 1, sizeof *inputs);
  outputs = (DLTensor *)calloc((size_t)code->outputs + 1, sizeof *outputs);
  file = fopen(arguments[1], "rb");
  if (!file) return fail("the inputs cannot be read");
  for (i = 0; i < code->inputs; ++i) {
    if (read_input(file, &code->values[i], &inputs[i])) return fail("the inputs are too short");
  }
  fclose(file);
  for (i = 0; i < code->outputs; ++i) {
    outputs[i].shape = (int64_t *)calloc((size_t)code->values[code->inputs + i].ndim + 1, sizeof(int64_t));
  }
  if (mirlo_shapes(context, inputs, outputs) != MIRLO_OK) return fail(mirlo_message(context));
  for (i = 0; i < code->outputs; ++i) {
    if (!code->values[code->inputs + i].late) outputs[i].data = malloc(mirlo_bytes(&outputs[i]) + 1);
  }
  if (mirlo_run(context, inputs, outputs) != MIRLO_OK) return fail(mirlo_message(context));
  file = fopen(arguments[2], "wb");
  if (!file) return fail("the outputs cannot be written");
  for (i = 0; i < code->outputs; ++i) {
    fwrite(outputs[i].shape, sizeof(int64_t), (size_t)outputs[i].ndim, file);
    fwrite(outputs[i].data, 1, mirlo_bytes(&outputs[i]), file);
  }
  return fclose(file) != 0;
}
