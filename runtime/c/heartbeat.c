/* Signs of life of a process, counted in memory that other processes read. A thread of its own counts without Python's lock:
 * whatever the other threads compute, only a process that is stopped counts no further. */
#include <stdint.h>

int usleep(uint32_t microseconds);

void mirlo_heartbeat(int64_t *count, uint32_t microseconds) {
  for (;;) {
    __atomic_store_n(count, __atomic_load_n(count, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
    usleep(microseconds);
  }
}
