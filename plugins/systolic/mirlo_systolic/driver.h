/* What connects the driver to a unit: a device, or the simulator of this package. */
#include <stdint.h>

#ifndef SYSTOLIC_LINKAGE
#define SYSTOLIC_LINKAGE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Execute commands of 32 bytes on a memory that the unit reaches. Each barrier gives a record of five numbers: the
   cycle, and the cycles in which loads, the array, requantization and stores worked until then. Returns 0; 1 for an
   address outside of memory; 2 if the unit stops. */
int systolic_execute(uint8_t *memory, uint64_t size, const uint32_t *commands, uint64_t count, uint64_t *records,
                     uint64_t record_count);

/* Run a program on tensors: its inputs, then its outputs. Returns what `systolic_execute` returns, 3 for a program that
   is damaged, or 4 without memory. */
SYSTOLIC_LINKAGE int systolic_call(const uint8_t *program, uint64_t size, void **tensors, uint64_t count, uint64_t *records,
                  uint64_t record_count);

#ifdef __cplusplus
}
#endif
