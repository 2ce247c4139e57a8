/* Threads, mutexes and condition variables of POSIX, Windows and WebAssembly, for the pool. Declared by hand: the pool is
 * translated for systems whose headers are not there. */
#include <stddef.h>
#include <stdint.h>

#define SPINS 4000 /* polls of the job, some 10 to 40 ns each with a pause, before a worker goes to sleep */

#if defined(__wasm__)
/* Memory is shared by instances of one module, each of which is a thread; the program makes them. A mutex is 1 while a thread
 * has it, for a few instructions, so threads poll it. A condition variable counts its broadcasts.
 *
 * A fence, some 15 ns, is in the pause's place, and a worker that sleeps costs more: its caller 20 us to wake it, and as much
 * until it runs. Between the kernels of MobileNetV2 workers slept 29 times a call after 4000 polls without a fence, which are
 * 8 us; with these, once in two calls. */
#undef SPINS
#define SPINS 16000
typedef int32_t mutex_storage, condition_storage;
static int32_t may_sleep, never, sleeps;

static int start_thread(uintptr_t *thread, void *(*run)(void *), void *argument) {
  (void)run, (void)argument;
  *thread = 0;
  return 1;
}
static void begin_mutex(mutex_storage *mutex) { *mutex = 0; }
static void lock_mutex(mutex_storage *mutex) {
  while (__atomic_exchange_n(mutex, 1, __ATOMIC_SEQ_CST)) {}
}
static void unlock_mutex(mutex_storage *mutex) { __atomic_store_n(mutex, 0, __ATOMIC_SEQ_CST); }
static void begin_condition(condition_storage *condition) { *condition = 0; }
static void wait_condition(condition_storage *condition, mutex_storage *mutex) {
  int32_t seen;
  __atomic_fetch_add(&sleeps, 1, __ATOMIC_RELAXED);
  seen = __atomic_load_n(condition, __ATOMIC_SEQ_CST);
  unlock_mutex(mutex);
  __builtin_wasm_memory_atomic_wait32(condition, seen, -1);
  lock_mutex(mutex);
}
static void wake_all(condition_storage *condition) {
  __atomic_fetch_add(condition, 1, __ATOMIC_SEQ_CST);
  __builtin_wasm_memory_atomic_notify(condition, -1u);
}
static void yield_core(void) {
  if (may_sleep) __builtin_wasm_memory_atomic_wait32(&never, 0, 20000);
}

#elif defined(_WIN32)
/* A mutex is a slim lock, one pointer that is null at first, as is a condition variable. The result of a thread's function is
 * not used, and it has the convention of a function of C. */
typedef void *mutex_storage, *condition_storage;
void AcquireSRWLockExclusive(mutex_storage *);
void ReleaseSRWLockExclusive(mutex_storage *);
int32_t SleepConditionVariableSRW(condition_storage *, mutex_storage *, uint32_t, uint32_t);
void WakeAllConditionVariable(condition_storage *);
void *CreateThread(void *, size_t, void *(*)(void *), void *, uint32_t, uint32_t *);
int32_t CloseHandle(void *);
int32_t SwitchToThread(void);

static int start_thread(uintptr_t *thread, void *(*run)(void *), void *argument) {
  void *handle = CreateThread(NULL, 0, run, argument, 0, NULL);
  *thread = 0;
  return handle && (CloseHandle(handle), 1);
}
static void begin_mutex(mutex_storage *mutex) { *mutex = NULL; }
static void lock_mutex(mutex_storage *mutex) { AcquireSRWLockExclusive(mutex); }
static void unlock_mutex(mutex_storage *mutex) { ReleaseSRWLockExclusive(mutex); }
static void begin_condition(condition_storage *condition) { *condition = NULL; }
static void wait_condition(condition_storage *condition, mutex_storage *mutex) { SleepConditionVariableSRW(condition, mutex, -1u, 0); }
static void wake_all(condition_storage *condition) { WakeAllConditionVariable(condition); }
static void yield_core(void) { SwitchToThread(); }

#else
/* Opaque: sizes differ from system to system; a thread's handle is a long or a pointer on all. */
typedef struct {
  _Alignas(64) char bytes[256];
} mutex_storage, condition_storage;
int pthread_create(uintptr_t *, const void *, void *(*)(void *), void *);
int pthread_detach(uintptr_t);
int pthread_mutex_init(mutex_storage *, const void *);
int pthread_mutex_lock(mutex_storage *);
int pthread_mutex_unlock(mutex_storage *);
int pthread_cond_init(condition_storage *, const void *);
int pthread_cond_wait(condition_storage *, mutex_storage *);
int pthread_cond_broadcast(condition_storage *);
int sched_yield(void);

static int start_thread(uintptr_t *thread, void *(*run)(void *), void *argument) {
  if (pthread_create(thread, NULL, run, argument)) return 0;
  pthread_detach(*thread);
  return 1;
}
static void begin_mutex(mutex_storage *mutex) { pthread_mutex_init(mutex, NULL); }
static void lock_mutex(mutex_storage *mutex) { pthread_mutex_lock(mutex); }
static void unlock_mutex(mutex_storage *mutex) { pthread_mutex_unlock(mutex); }
static void begin_condition(condition_storage *condition) { pthread_cond_init(condition, NULL); }
static void wait_condition(condition_storage *condition, mutex_storage *mutex) { pthread_cond_wait(condition, mutex); }
static void wake_all(condition_storage *condition) { pthread_cond_broadcast(condition); }
static void yield_core(void) { sched_yield(); }
#endif
