/* The thread pool: one job at a time, divided into chunks that threads claim one by one. The caller claims them from the first
 * on, its helpers from the last on: each has the same part of every tensor in all jobs, and finds in its cache what it wrote.
 *
 * `state` has the number of the job in its upper 24 bits, then how many chunks were claimed at the end, then how many at the
 * start, 20 bits each: a claim is one compare-and-swap, which fails if the job has changed. A thread that wakes late finds
 * nothing to claim; nobody waits for it. While the fields of a new job are written `state` is CLOSED, with all chunks claimed:
 * a thread with the old state fails to swap it; without CLOSED, one that reads new fields beside the old state would claim a
 * chunk of a job that is not there yet. Idle workers spin for a moment, then sleep on a condition variable.
 *
 * The caller claims all that is left, so it only waits for chunks that a worker has begun. If that takes far longer than its
 * own chunks did, the worker has lost its core to another process: jobs then run on their callers' threads alone for 8 times
 * the time that was lost, 16 times if it happens again at once: a core that is free again is missed for no longer. The counter
 * of cycles measures both; the unit does not matter.
 *
 * Threads of OpenMP spin after each region, and workers of the pool would compete with them for the cores. In a process with
 * OpenMP its team are the workers (`mirlo_pool_team`): a job is a region, always of as many threads as its own, since its run
 * time ends threads that a smaller region does not need. Callers then wait for a core that was taken, as for those of OpenMP's
 * own regions: to run alone for a while costs more if the kernels in between need the team too. */
#include "system_threads.h"

#define LINE _Alignas(64)
#define COUNT_BITS 20
#define MOST_CHUNKS ((1 << COUNT_BITS) - 1) /* in a job; as a number of claimed chunks: closed */
#define FROM_START 1ull                      /* what a claim adds to the state */
#define FROM_END (1ull << COUNT_BITS)
#define JOB (1ull << 2 * COUNT_BITS)
#define CLOSED (JOB - 1)
#define SHORTEST_REST 8 /* times of what was lost */
#define LONGEST_REST 16
#define PATIENCE 4 /* times of its own chunks that a caller waits for those of its helpers */

typedef void part_function(void *arguments, int32_t chunk, int32_t chunks);
typedef void region_function(void (*member)(void *), void *arguments, uint32_t threads, uint32_t flags);

static LINE uint64_t state;
static LINE int32_t done;
static LINE int32_t total;
static int32_t limit;
static part_function *function;
static void *arguments;
static LINE int32_t busy;
static LINE int32_t sleepers;
static LINE int32_t workers;
static uint64_t alone_until, alone_ticks, rest_factor = SHORTEST_REST;
static region_function *team_region;
static int32_t (*team_number)(void);
static mutex_storage mutex;
static condition_storage condition;

#if defined(__x86_64__) || defined(__i386__)
static void relax(void) { __builtin_ia32_pause(); }
static uint64_t ticks(void) { return __builtin_readcyclecounter(); }
#elif defined(__aarch64__)
static void relax(void) { __builtin_arm_yield(); }
static uint64_t ticks(void) { return __builtin_readcyclecounter(); }
#elif defined(__wasm__)
static void relax(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static uint64_t ticks(void) { return 0; }
#else
static void relax(void) {}
static uint64_t ticks(void) { return 0; } /* jobs never leave a busy core */
#endif

static uint32_t claimed_at_end(uint64_t seen) { return (uint32_t)(seen >> COUNT_BITS) & MOST_CHUNKS; }
static uint32_t claimed(uint64_t seen) { return ((uint32_t)seen & MOST_CHUNKS) + claimed_at_end(seen); }

/* Claim and run chunks until none is left: from the first or from the last one on. */
static void work(uint64_t step) {
  for (;;) {
    uint64_t seen = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
    uint32_t last = claimed_at_end(seen);
    int32_t all, chunk;
    if (claimed(seen) >= (uint32_t)__atomic_load_n(&total, __ATOMIC_ACQUIRE)) return;
    chunk = (int32_t)(claimed(seen) - last);
    if (!__atomic_compare_exchange_n(&state, &seen, seen + step, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) continue;
    /* The job cannot end, nor its fields change, before this chunk is counted as done. */
    all = __atomic_load_n(&total, __ATOMIC_RELAXED);
    function(arguments, step == FROM_START ? chunk : all - 1 - (int32_t)last, all);
    __atomic_fetch_add(&done, 1, __ATOMIC_ACQ_REL);
  }
}

static int has_work(int32_t id) {
  uint64_t seen = __atomic_load_n(&state, __ATOMIC_SEQ_CST);
  return claimed(seen) < (uint32_t)__atomic_load_n(&total, __ATOMIC_RELAXED) && id < __atomic_load_n(&limit, __ATOMIC_RELAXED);
}

static void *worker(void *argument) {
  int32_t id = (int32_t)(intptr_t)argument, turns = 0;
  for (;;) {
    if (has_work(id)) {
      work(FROM_END);
      turns = 0;
    } else if (relax(), ++turns > SPINS) {
      lock_mutex(&mutex);
      __atomic_fetch_add(&sleepers, 1, __ATOMIC_SEQ_CST);
      while (!has_work(id)) wait_condition(&condition, &mutex);
      __atomic_fetch_sub(&sleepers, 1, __ATOMIC_SEQ_CST);
      unlock_mutex(&mutex);
      turns = 0;
    }
  }
  return 0;
}

#if defined(__linux__)
#include "affinity.h"
#else
void mirlo_pool_cores(const int32_t *list, int32_t count) { (void)list, (void)count; }
static void mirlo_pool_started(int32_t id, uintptr_t thread) { (void)id, (void)thread; }
static void mirlo_pool_place(int32_t count) { (void)count; }
#endif

#if defined(__wasm__)
/* Work as the helper of this number, from 0 on, until the program ends. A thread is an instance of the module that the program makes. */
void mirlo_pool_work(int32_t id) { worker((void *)(intptr_t)id); }

/* Set whether the caller of models may sleep, as the main thread of a browser may not. */
void mirlo_pool_may_sleep(int32_t may) { may_sleep = may; }

/* Return how many times workers went to sleep, since the module was loaded. */
int32_t mirlo_pool_sleeps(void) { return __atomic_load_n(&sleeps, __ATOMIC_RELAXED); }
#endif

/* Have at least so many workers; the caller has a lock. Return how many there are. */
int32_t mirlo_pool_start(int32_t wanted) {
  int32_t id = workers;
  uintptr_t thread = 0;
  while (id < wanted && start_thread(&thread, worker, (void *)(intptr_t)id)) {
    mirlo_pool_started(id, thread);
    __atomic_store_n(&workers, ++id, __ATOMIC_RELEASE);
  }
  return id;
}

/* Have jobs run by a team of OpenMP: its GOMP_parallel and omp_get_thread_num. */
void mirlo_pool_team(region_function *region, int32_t (*number)(void)) {
  team_number = number;
  __atomic_store_n(&team_region, region, __ATOMIC_RELEASE);
  __atomic_store_n(&alone_until, 0, __ATOMIC_RELAXED);
}

/* What each thread of the team runs: the caller has number 0; no more of the others help than the job asks for. */
static void member(void *helpers) {
  int32_t id = team_number();
  if (!id) {
    work(FROM_START);
  } else if ((uint32_t)id <= *(const uint32_t *)helpers) {
    work(FROM_END);
  }
}

/* Make the pool empty: at first use, and in the child of a fork, which has none of its parent's threads. */
void mirlo_pool_reset(void) {
  state = 0;
  total = done = limit = busy = sleepers = workers = 0;
  alone_until = alone_ticks = 0;
  rest_factor = SHORTEST_REST;
  team_region = 0;
  begin_mutex(&mutex);
  begin_condition(&condition);
}

/* Write the fields of a new job. Return the team that runs it, if there is one. */
static region_function *post(part_function *part, void *given, int32_t chunks, int32_t helpers) {
  uint64_t fresh = (__atomic_load_n(&state, __ATOMIC_RELAXED) / JOB + 1) * JOB;
  region_function *region = __atomic_load_n(&team_region, __ATOMIC_ACQUIRE);
  __atomic_store_n(&state, fresh | CLOSED, __ATOMIC_SEQ_CST);
  function = part;
  arguments = given;
  __atomic_store_n(&done, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&limit, region ? 0 : helpers, __ATOMIC_RELAXED);
  __atomic_store_n(&total, chunks, __ATOMIC_RELEASE);
  __atomic_store_n(&state, fresh, __ATOMIC_SEQ_CST);
  return region;
}

/* Wait for chunks that helpers have begun. Return whether it took long. */
static int wait_for_helpers(int32_t chunks) {
  uint32_t turns = 0;
  int is_slow = 0;
  while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) != chunks) {
    relax();
    if (++turns <= SPINS) continue;
    yield_core(); /* a worker that has a chunk may have lost this core to its caller */
    turns = 0;
    is_slow = 1;
  }
  return is_slow;
}

/* Let the next jobs run on their callers' threads alone if the helpers took far longer than the caller. Of its own chunks the
 * caller had about a share of all. A worker may take as long for one, and longer if there are few and they are unequal: one of
 * 135 rows beside one of 61 is no lost core, for which a worker waits for milliseconds. */
static void leave_busy_core(uint64_t begun, uint64_t worked, uint64_t until) {
  uint64_t now = ticks(), lost = now - worked;
  if (lost <= PATIENCE * (worked - begun)) return;
  rest_factor = now < until + alone_ticks ? (2 * rest_factor < LONGEST_REST ? 2 * rest_factor : LONGEST_REST) : SHORTEST_REST;
  alone_ticks = lost * rest_factor;
  __atomic_store_n(&alone_until, now + alone_ticks, __ATOMIC_RELAXED);
}

/* Return whether the pool serves this caller now; it then has `busy`. */
static int take_pool(uint64_t begun, uint64_t until) {
  int32_t idle = 0;
  return begun >= until && __atomic_compare_exchange_n(&busy, &idle, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Run part(given, chunk, chunks) for every chunk, on at most so many threads, this one included. */
void mirlo_parallel(part_function *part, void *given, int32_t chunks, int32_t threads) {
  int is_shared = (uint32_t)chunks > 1 && (uint32_t)threads > 1 && (uint32_t)chunks < MOST_CHUNKS;
  uint64_t begun = is_shared ? ticks() : 0, worked, until = __atomic_load_n(&alone_until, __ATOMIC_RELAXED);
  int32_t helpers = threads - 1, i;
  region_function *region;
  if (!is_shared || !take_pool(begun, until)) {
    /* Cores that others have taken, or another caller, for whom to wait would take longer than the work. */
    for (i = 0; i < chunks; ++i) part(given, i, chunks);
    return;
  }
  region = post(part, given, chunks, helpers);
  if (region) {
    region(member, &helpers, 0, 0);
  } else {
    if (__atomic_load_n(&sleepers, __ATOMIC_SEQ_CST)) {
      mirlo_pool_place(__atomic_load_n(&workers, __ATOMIC_ACQUIRE));
      lock_mutex(&mutex);
      wake_all(&condition);
      unlock_mutex(&mutex);
    }
    work(FROM_START);
  }
  worked = ticks();
  if (wait_for_helpers(chunks)) leave_busy_core(begun, worked, until);
  __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
}
