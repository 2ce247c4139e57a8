/* A driver of a unit for products, which computes on the processor. Its program is a list of words: the number of commands, the
 * columns of its scratch memory, the number of tensors, and for each command the places of its operands and its result, whether
 * it clips, and its sizes. Places from 0 are tensors, those below 0 constants, those from 1000 columns of the scratch memory. */
#include "mirlo.h"

static const float *unit_read(const mirlo_region *region, DLTensor **tensors, const float *scratch, int64_t rows, int32_t place) {
  if (place < 0) return (const float *)region->weights[-1 - place];
  if (place >= 1000) return scratch + rows * (place - 1000);
  return (const float *)((const char *)tensors[place]->data + tensors[place]->byte_offset);
}

int unit_run(const mirlo_region *region, DLTensor **tensors, int64_t count) {
  const int32_t *words = (const int32_t *)region->program, *command;
  int64_t rows = tensors[0]->shape[0], i, j, k;
  float *scratch = NULL;
  int32_t n;
  if (!words || region->program_bytes != (uint64_t)(3 + 6 * words[0]) * 4) return 71;
  if (count != words[2] + (words[1] > 0)) return 72;
  if (region->context && *(const int *)region->context) return *(const int *)region->context;
  if (words[1]) {
    const DLTensor *last = tensors[count - 1];
    if (last->dtype.bits != 8 || last->shape[0] != rows * words[1] * 4) return 73;
    scratch = (float *)((char *)last->data + last->byte_offset);
  }
  for (n = 0, command = words + 3; n < words[0]; ++n, command += 6) {
    const float *lhs = unit_read(region, tensors, scratch, rows, command[0]);
    const float *rhs = unit_read(region, tensors, scratch, rows, command[1]);
    float *result = (float *)unit_read(region, tensors, scratch, rows, command[2]);
    for (i = 0; i < rows; ++i) {
      for (j = 0; j < command[5]; ++j) {
        float sum = 0;
        for (k = 0; k < command[4]; ++k) sum += lhs[i * command[4] + k] * rhs[k * command[5] + j];
        result[i * command[5] + j] = command[3] && sum < 0 ? 0 : sum;
      }
    }
  }
  return 0;
}
