/* Signals while compiled code runs. Python's handlers run only when its main thread runs Python: loops of a model without a
 * known end call `mirlo_poll` after each iteration, which runs the handlers every so often, with Python's lock. If one
 * raises an exception, as that of Ctrl-C does, the exception is kept and the model returns.
 *
 * Few iterations read the clock: one of 2^n, where n grows while iterations are short by the clock. All threads share the
 * counters; a race costs an iteration more or less until the next look. */
#include <Python.h>

#include <stdint.h>

#define LOAD(value) __atomic_load_n(&(value), __ATOMIC_RELAXED)
#define STORE(value, now) __atomic_store_n(&(value), now, __ATOMIC_RELAXED)
#define MOST_ITERATIONS 256 /* between two looks at the clock */
#define LOOKS 256           /* at the clock for each check: iterations that take longer look each time */

_Alignas(64) static int32_t left;
static int32_t period = 1;
static uint64_t looked, checked, check_ticks;
/* The type, the value and the traceback of the exception that ended a call. */
PyObject *mirlo_poll_error[3];

/* Set the ticks of the counter between two checks of signals; 0: the processor has no counter, each look is a check. */
void mirlo_poll_begin(uint64_t ticks) { check_ticks = ticks; }

/* Return whether the call is to end. */
_Bool mirlo_poll(void) {
  int32_t after = LOAD(left) - 1, doubled;
  uint64_t now, passed;
  PyGILState_STATE lock;
  int failed;
  STORE(left, after);
  if (after >= 0) return 0;
  now = check_ticks ? __builtin_readcyclecounter() : 0;
  passed = now - LOAD(looked);
  STORE(looked, now);
  doubled = LOAD(period) * 2;
  if (doubled > MOST_ITERATIONS) doubled = MOST_ITERATIONS;
  if (passed >= check_ticks / LOOKS) doubled = 1;
  STORE(period, doubled);
  STORE(left, doubled);
  if (now - LOAD(checked) < check_ticks) return 0;
  STORE(checked, now);
  lock = PyGILState_Ensure();
  failed = PyErr_CheckSignals() != 0;
  if (failed) PyErr_Fetch(&mirlo_poll_error[0], &mirlo_poll_error[1], &mirlo_poll_error[2]);
  PyGILState_Release(lock);
  return failed;
}
