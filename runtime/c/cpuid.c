/* What an x86 processor says of itself. */
#include <cpuid.h>
#include <stdint.h>

/* Write the four words that CPUID returns for its arguments. */
void mirlo_cpuid(uint32_t leaf, uint32_t part, uint32_t *words) { __cpuid_count(leaf, part, words[0], words[1], words[2], words[3]); }
