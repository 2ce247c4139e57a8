/* The driver of the unit: copies tensors and constants to its memory, lets it execute, and copies results back. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC 0x54535953u
#define HEAD 8
#define WORDS 7

/* A program: 8 words (magic, version, bytes of memory, address and bytes of constants, commands, inputs, outputs), 7
   words of each tensor, commands from a multiple of 64 bytes, constants. A tensor: its address, its bytes, the bytes
   of a line and the distance between lines; address and bytes of what is filled before, and with which value. */
SYSTOLIC_LINKAGE int systolic_call(const uint8_t *program, uint64_t size, void **tensors, uint64_t count, uint64_t *records,
                  uint64_t record_count) {
  const uint32_t *head = (const uint32_t *)program, *places = head + HEAD;
  uint64_t inputs, commands, i;
  uint8_t *memory;
  int status;
  if (size < 4 * HEAD || head[0] != MAGIC || head[1] != 2) return 3;
  inputs = head[6];
  commands = (4 * HEAD + 4 * WORDS * count + 63) / 64 * 64;
  if (inputs + head[7] != count || count > size || commands + 32 * (uint64_t)head[5] + head[4] != size) return 3;
  if ((uint64_t)head[3] + head[4] > head[2]) return 3;
  for (i = 0; i < count; ++i) {
    const uint32_t *place = places + WORDS * i;
    const uint64_t lines = place[2] == 0 ? 0 : place[1] / place[2];
    if (place[1] != 0 && (lines * place[2] != place[1] || place[0] + (lines - 1) * place[3] + place[2] > head[2])) return 3;
    if ((uint64_t)place[4] + place[5] > head[2]) return 3;
  }
  memory = (uint8_t *)malloc(head[2]);
  if (memory == NULL) return 4;
  memcpy(memory + head[3], program + commands + 32 * (uint64_t)head[5], head[4]);
  for (i = 0; i < inputs; ++i) {
    const uint32_t *place = places + WORDS * i;
    uint64_t from, to = place[0];
    memset(memory + place[4], (int)place[6], place[5]);
    for (from = 0; from < place[1]; from += place[2], to += place[3]) {
      memcpy(memory + to, (const uint8_t *)tensors[i] + from, place[2]);
    }
  }
  status = systolic_execute(memory, head[2], (const uint32_t *)(program + commands), head[5], records, record_count);
  for (i = inputs; i < count; ++i) memcpy(tensors[i], memory + places[WORDS * i], places[WORDS * i + 1]);
  free(memory);
  return status;
}
