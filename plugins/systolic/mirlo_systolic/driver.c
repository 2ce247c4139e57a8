/* The driver of the unit: copies tensors and constants to its memory, lets it execute, and copies results back. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC 0x54535953u
#define HEAD 8

/* A program: 8 words (magic, version, bytes of memory, address and bytes of constants, commands, inputs, outputs),
   address and bytes of each tensor, commands from a multiple of 64 bytes, constants. */
SYSTOLIC_LINKAGE int systolic_call(const uint8_t *program, uint64_t size, void **tensors, uint64_t count, uint64_t *records,
                  uint64_t record_count) {
  const uint32_t *head = (const uint32_t *)program, *places = head + HEAD;
  uint64_t inputs, commands, i;
  uint8_t *memory;
  int status;
  if (size < 4 * HEAD || head[0] != MAGIC || head[1] != 1) return 3;
  inputs = head[6];
  commands = (4 * HEAD + 8 * count + 63) / 64 * 64;
  if (inputs + head[7] != count || count > size || commands + 32 * (uint64_t)head[5] + head[4] != size) return 3;
  if ((uint64_t)head[3] + head[4] > head[2]) return 3;
  for (i = 0; i < count; ++i) {
    if ((uint64_t)places[2 * i] + places[2 * i + 1] > head[2]) return 3;
  }
  memory = (uint8_t *)malloc(head[2]);
  if (memory == NULL) return 4;
  memcpy(memory + head[3], program + commands + 32 * (uint64_t)head[5], head[4]);
  for (i = 0; i < inputs; ++i) memcpy(memory + places[2 * i], tensors[i], places[2 * i + 1]);
  status = systolic_execute(memory, head[2], (const uint32_t *)(program + commands), head[5], records, record_count);
  for (i = inputs; i < count; ++i) memcpy(tensors[i], memory + places[2 * i], places[2 * i + 1]);
  free(memory);
  return status;
}
