/* Runs the model that is linked in, with the weights in the file that it is called with; prints the bits of an output. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model.h"

int main(int count, char **arguments) {
  static float x[3 * 40], y[3 * 24], z[3 * 40];
  int64_t x_shape[2] = {3, 40}, y_shape[2] = {3, 24}, z_shape[2] = {3, 40};
  DLTensor input = {x, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, x_shape, NULL, 0};
  DLTensor outputs[2] = {{y, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, y_shape, NULL, 0},
                         {z, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, z_shape, NULL, 0}};
  mirlo_options options = {0};
  mirlo_model *model;
  mirlo_context *context;
  char error[256];
  int i;
  for (i = 0; i < 3 * 40; ++i) x[i] = (float)i / 100.0f;
  options.size = sizeof options;
  options.weights_path = count > 1 ? arguments[1] : NULL;
  if (mirlo_create(&mirlo_model_model, &options, &model, error, sizeof error) != MIRLO_OK) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }
  if (mirlo_context_create(model, &context) != MIRLO_OK || mirlo_run(context, &input, outputs) != MIRLO_OK) return 2;
  for (i = 0; i < 3 * 24; ++i) {
    uint32_t bits;
    memcpy(&bits, &y[i], sizeof bits);
    printf("%" PRIu32 "\n", bits);
  }
  mirlo_context_destroy(context);
  mirlo_close(model);
  return 0;
}
