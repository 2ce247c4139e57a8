/* The cores that the workers of the pool run on: all but the caller's, divided among them (Linux).
 *
 * The system tends to put a thread on the core of the one that wakes it, where it waits until that one sleeps. So before
 * sleeping workers are woken, the cores that the process may use, without the caller's, are dealt out to them: one each if there
 * are as many threads as cores, else several to choose from. `cores` is in an order in which neighbours share no physical
 * core. If someone else sets the mask of a worker, masks are left alone from then on. */
#define MOST_CORES 1024
#define MASK_BYTES (MOST_CORES / 8)

int sched_getcpu(void);
int pthread_getaffinity_np(uintptr_t, size_t, void *);
int pthread_setaffinity_np(uintptr_t, size_t, const void *);

static int32_t cores[MOST_CORES], core_count, caller_core = -1;
static uintptr_t threads_of_pool[MOST_CORES];
static LINE unsigned char masks[MOST_CORES][MASK_BYTES];
static int is_foreign;

/* Set which cores there are; at the start, and after a fork. */
void mirlo_pool_cores(const int32_t *list, int32_t count) {
  int32_t i;
  caller_core = -1;
  is_foreign = 0;
  for (i = 0; i < count && i < MOST_CORES; ++i) cores[i] = list[i];
  core_count = i;
}

/* Keep a worker that was started, and the mask that it has. */
void mirlo_pool_started(int32_t id, uintptr_t thread) {
  if (id >= MOST_CORES) return;
  threads_of_pool[id] = thread;
  caller_core = -1;
  if (pthread_getaffinity_np(thread, MASK_BYTES, masks[id])) is_foreign = 1;
}

/* Give a worker a mask, if it still has the one that it was given before. Return whether it has the new one. */
static int set_mask(int32_t id, const unsigned char *mask) {
  _Alignas(16) unsigned char found[MASK_BYTES];
  int32_t i;
  if (pthread_getaffinity_np(threads_of_pool[id], MASK_BYTES, found)) return 0;
  for (i = 0; i < MASK_BYTES; ++i) {
    if (found[i] != masks[id][i]) return 0;
  }
  if (pthread_setaffinity_np(threads_of_pool[id], MASK_BYTES, mask)) return 0;
  for (i = 0; i < MASK_BYTES; ++i) masks[id][i] = mask[i];
  return 1;
}

/* Keep so many workers off the core of the caller, which has the pool. */
void mirlo_pool_place(int32_t count) {
  int32_t here = sched_getcpu(), place = 0, others = core_count - 1, i, id;
  if (here == caller_core || is_foreign || others < count || count > MOST_CORES) return;
  while (place < core_count && cores[place] != here) ++place;
  if (place == core_count) return;
  caller_core = here;
  for (id = 0; id < count; ++id) {
    _Alignas(16) unsigned char mask[MASK_BYTES];
    for (i = 0; i < MASK_BYTES; ++i) mask[i] = 0;
    for (i = id; i < others; i += count) {
      int32_t core = cores[(place + 1 + i) % core_count];
      mask[core >> 3] = (unsigned char)(mask[core >> 3] | 1 << (core & 7));
    }
    if (!set_mask(id, mask)) {
      is_foreign = 1;
      return;
    }
  }
}
