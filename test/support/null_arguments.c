/* Calls each function of mirlo.h with NULL in the place of each argument, and with dims that no memory has; prints what gave another status than expected. */
#include <stdio.h>
#include <string.h>

#include "mirlo.h"

extern const mirlo_code MODEL;
static int wrong;

static void expect(int wanted, int found, const char *what, int line) {
  if (found == wanted) return;
  printf("line %d: %s gave %d\n", line, what, found);
  ++wrong;
}
#define EXPECT(status, call) expect(status, call, #call, __LINE__)

static int says(mirlo_context *context, const char *text) { return strstr(mirlo_message(context), text) != NULL; }

int main(void) {
  static float data[3 * 40], made[3 * 24], copy[3 * 40];
  int64_t shape[2] = {3, 40}, made_shape[2] = {3, 24}, copy_shape[2] = {3, 40};
  DLTensor input = {data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0}, broken = input;
  DLTensor outputs[2] = {{made, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, made_shape, NULL, 0},
                         {copy, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, copy_shape, NULL, 0}};
  mirlo_options options = {0};
  mirlo_model *model = NULL;
  mirlo_context *context = NULL;
  char error[128];
  int size;

  EXPECT(MIRLO_INPUT, mirlo_create(NULL, NULL, &model, error, sizeof error));
  expect(0, strcmp(error, "code is NULL"), error, __LINE__);
  EXPECT(MIRLO_INPUT, mirlo_create(&MODEL, NULL, NULL, NULL, 0));
  EXPECT(MIRLO_INPUT, mirlo_create(NULL, NULL, NULL, NULL, sizeof error));
  EXPECT(MIRLO_INPUT, mirlo_open(NULL, "model", NULL, &model, error, sizeof error));
  EXPECT(MIRLO_INPUT, mirlo_open("library", NULL, NULL, &model, error, sizeof error));
  EXPECT(MIRLO_INPUT, mirlo_open("library", "model", NULL, NULL, error, 0));
  EXPECT(MIRLO_FILE, mirlo_open("none", "model", NULL, &model, NULL, 0));
  EXPECT(MIRLO_INPUT, mirlo_context_create(NULL, &context));
  expect(1, mirlo_code_of(NULL) == NULL, "mirlo_code_of(NULL)", __LINE__);
  expect(1, says(NULL, "NULL"), "mirlo_message(NULL)", __LINE__);
  mirlo_close(NULL);
  mirlo_context_destroy(NULL);

  EXPECT(MIRLO_INPUT, mirlo_create(&MODEL, &options, &model, error, sizeof error));
  expect(1, strstr(error, "set options.size to sizeof options") != NULL, error, __LINE__);
  EXPECT(MIRLO_INPUT, mirlo_open("none", "model", &options, &model, NULL, 0));
  options.size = sizeof options + 1;
  EXPECT(MIRLO_VERSION, mirlo_create(&MODEL, &options, &model, error, sizeof error));
  options.size = sizeof options;
  options.function_count = 3;
  EXPECT(MIRLO_INPUT, mirlo_create(&MODEL, &options, &model, error, sizeof error));
  expect(1, strstr(error, "options.functions is NULL") != NULL, error, __LINE__);
  expect(1, mirlo_bytes(NULL) == SIZE_MAX, "mirlo_bytes(NULL)", __LINE__);
  options.function_count = 0;
  EXPECT(MIRLO_OK, mirlo_create(&MODEL, &options, &model, NULL, 0));
  EXPECT(MIRLO_INPUT, mirlo_context_create(model, NULL));
  EXPECT(MIRLO_OK, mirlo_context_create(model, &context));
  EXPECT(MIRLO_INPUT, mirlo_shapes(NULL, &input, outputs));
  EXPECT(MIRLO_INPUT, mirlo_shapes(context, NULL, outputs));
  expect(1, says(context, "the inputs are NULL"), mirlo_message(context), __LINE__);
  EXPECT(MIRLO_INPUT, mirlo_shapes(context, &input, NULL));
  EXPECT(MIRLO_INPUT, mirlo_run(NULL, &input, outputs));
  EXPECT(MIRLO_INPUT, mirlo_run(context, NULL, outputs));
  EXPECT(MIRLO_INPUT, mirlo_run(context, &input, NULL));
  expect(1, says(context, "the outputs are NULL"), mirlo_message(context), __LINE__);
  expect(1, mirlo_bytes(&input) == sizeof data, "the bytes of a tensor", __LINE__);
  broken.shape = copy_shape;
  copy_shape[0] = copy_shape[1] = (int64_t)1 << 31;
  expect(1, mirlo_bytes(&broken) == SIZE_MAX, "the bytes of 2^62 floats", __LINE__);
  copy_shape[0] = 0;
  expect(1, mirlo_bytes(&broken) == 0, "the bytes of an empty tensor", __LINE__);
  copy_shape[1] = -1;
  expect(1, mirlo_bytes(&broken) == SIZE_MAX, "the bytes of a tensor with a negative dim", __LINE__);
  copy_shape[0] = 3, copy_shape[1] = 40;
  broken.shape = NULL;
  EXPECT(MIRLO_INPUT, mirlo_shapes(context, &broken, outputs));
  EXPECT(MIRLO_INPUT, mirlo_run(context, &broken, outputs));
  expect(1, says(context, "'x': the shape is NULL"), mirlo_message(context), __LINE__);
  for (size = 0; size < 2; ++size) { /* whose products have more than 64 bits */
    int64_t huge[2], strides[2] = {INT64_MAX, 1};
    huge[0] = huge[1] = size ? INT64_MAX : (int64_t)1 << 40;
    broken = input;
    broken.shape = huge;
    broken.strides = strides;
    EXPECT(MIRLO_INPUT, mirlo_run(context, &broken, outputs));
    EXPECT(MIRLO_INPUT, mirlo_shapes(context, &broken, outputs));
  }
  broken = input;
  broken.data = NULL;
  EXPECT(MIRLO_OK, mirlo_shapes(context, &broken, outputs));
  EXPECT(MIRLO_INPUT, mirlo_run(context, &broken, outputs));
  outputs[1].shape = NULL;
  EXPECT(MIRLO_INPUT, mirlo_shapes(context, &input, outputs));
  EXPECT(MIRLO_INPUT, mirlo_run(context, &input, outputs));
  outputs[1].shape = copy_shape;
  outputs[1].data = NULL;
  EXPECT(MIRLO_INPUT, mirlo_run(context, &input, outputs));
  expect(1, says(context, "has no data"), mirlo_message(context), __LINE__);
  outputs[1].data = copy;
  EXPECT(MIRLO_OK, mirlo_run(context, &input, outputs));
  mirlo_context_destroy(context);
  mirlo_close(model);
  return wrong != 0;
}
