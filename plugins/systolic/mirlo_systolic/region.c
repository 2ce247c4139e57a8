/* The function of all regions, which calls the driver. */
#include "mirlo.h"

#include <stdlib.h>

int systolic_run(const mirlo_region *region, DLTensor **tensors, int64_t count) {
  void **data = (void **)malloc(count * sizeof *data);
  int64_t i;
  int status;
  if (data == NULL) return 4;
  for (i = 0; i < count; ++i) data[i] = (char *)tensors[i]->data + tensors[i]->byte_offset;
  status = systolic_call((const uint8_t *)region->program, region->program_bytes, data, count, NULL, 0);
  free(data);
  return status;
}
