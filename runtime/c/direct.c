/* The fast path of a call from Python: check arrays, bind sizes, make the results, call the entry function without Python's
 * lock. Objects are read and made by the interfaces of Python and NumPy. */
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_1_25_API_VERSION
#include <numpy/arrayobject.h>

#include "mirlo_call.h"

/* What these macros do differs between versions of Python. */
#undef Py_INCREF
#undef Py_DECREF
#define Py_INCREF(object) Py_IncRef((PyObject *)(object))
#define Py_DECREF(object) Py_DecRef((PyObject *)(object))

#define ALIGNED_FROM 4096 /* bytes from which aligning a result to a cache line pays off */
#define KEPT_FROM 65536   /* bytes from which memory is kept for the next call: C libraries map large blocks */
#define LARGE ((int64_t)1 << 30) /* bytes from which the general path looks whether there is memory */
#define CONTIGUOUS (NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED)

/* What a call needs to know of a model: the content of the bytes object that the function belongs to. */
typedef struct {
  void (*entry)(void **tensors, void *params, void *arena, uint64_t *profile);
  void *params;
  int64_t inputs, outputs;
  int64_t words;       /* of the call record; 0: without one */
  int64_t arena_word;  /* the word with the size of the arena; 0: it is fixed */
  int64_t allocates;   /* whether the model calls `allocate` */
  mirlo_block **spare; /* memory of the previous call, for the next one */
  int64_t specs[];     /* of inputs, then of outputs */
} call_state;

typedef struct {
  PyArray_Descr *dtype;
  int64_t bytes, late, rank; /* bytes of an element; whether the model calls `allocate` for its memory, as an output */
  int64_t dims[];
} spec;

static const spec *next_spec(const spec *s) { return (const spec *)(s->dims + s->rank); }

/* Before a record: the blocks of this call, the spare ones, then the block of each output. */
#define BLOCKS(record) (*(mirlo_block **)&(record)[-1])
#define SPARE(record) (*(mirlo_block **)&(record)[-2])
#define BLOCK_OF(record, output) (*(mirlo_block **)&(record)[-3 - (output)])
#define WORDS_BEFORE(outputs) ((outputs) + 2)

static PyTypeObject *array_type;

/* Return whether objects have the layout of these headers, by an array and a bytes object with the addresses of its type, of
 * its elements and of its dtype, with its rank, a dim and its flags; use this interface of NumPy from now on. */
int mirlo_direct_begin(void **interface, PyObject *object, PyObject *facts) {
  PyArrayObject *array = (PyArrayObject *)object;
  const int64_t *expected = (const int64_t *)PyBytes_AS_STRING(facts);
  PyArray_API = interface;
  array_type = &PyArray_Type;
  return PyArray_GetNDArrayCVersion() >> 24 <= 2 && (int64_t)(intptr_t)array_type == expected[0] && Py_TYPE(object) == array_type &&
         (int64_t)(intptr_t)PyArray_DATA(array) == expected[1] && (int64_t)(intptr_t)PyArray_DESCR(array) == expected[2] &&
         PyArray_NDIM(array) == expected[3] && PyArray_FLAGS(array) == expected[5] && PyArray_DIM(array, 1) == expected[4];
}

/* Free a list of blocks. */
void mirlo_direct_release(mirlo_block *block) {
  while (block) {
    mirlo_block *next = block->next;
    PyMem_RawFree(block);
    block = next;
  }
}

static void release_owner(PyObject *capsule) { PyMem_RawFree(PyCapsule_GetPointer(capsule, NULL)); }

/* What a model calls for memory of data-dependent sizes, without Python's lock; NULL if there is none, and for so much that
 * the general path must look whether there is. The call then fails. */
static void *allocate(int64_t *record, int64_t number, int64_t bytes) {
  mirlo_block *block = NULL;
  if (bytes >= 0 && bytes < LARGE) {
    /* Arrays of outputs have memory of their own, no more than they need. */
    mirlo_block **link = number < 0 && bytes >= KEPT_FROM ? mirlo_find_block(&SPARE(record), bytes, 2 * bytes) : NULL;
    if (link) {
      block = *link;
      *link = block->next;
    } else {
      block = PyMem_RawMalloc((size_t)(bytes + MIRLO_BLOCK_BYTES));
      if (block) block->bytes = bytes;
    }
  }
  if (!block) {
    record[0] = -1;
    return NULL;
  }
  block->next = BLOCKS(record);
  BLOCKS(record) = block;
  block->used = 0;
  if (number >= 0) BLOCK_OF(record, number) = block;
  return mirlo_elements(block);
}

/* Keep the large blocks of a call that no array owns for the next call, and free the others. New memory costs a fault for
 * each of its pages. */
static void keep_blocks(int64_t *record, mirlo_block **spare) {
  mirlo_block *block = BLOCKS(record), *kept = NULL, *others;
  while (block) {
    mirlo_block *next = block->next;
    if (!block->used && block->bytes >= KEPT_FROM) {
      block->next = kept;
      kept = block;
    } else if (!block->used) {
      PyMem_RawFree(block);
    }
    block = next;
  }
  mirlo_direct_release(SPARE(record));
  others = *spare; /* a call of another thread may have left some */
  *spare = kept;
  mirlo_direct_release(others);
}

/* Return an array over memory that `owner` owns, whose reference it takes. */
static PyObject *view_of(PyArray_Descr *dtype, int64_t rank, npy_intp *dims, void *memory, PyObject *owner) {
  PyObject *array;
  Py_INCREF(dtype);
  array = PyArray_NewFromDescr(array_type, dtype, (int)rank, dims, NULL, memory, NPY_ARRAY_CARRAY, NULL);
  if (array) {
    PyArray_SetBaseObject((PyArrayObject *)array, owner);
  } else {
    Py_DECREF(owner);
  }
  return array;
}

/* Return a new array, not initialized; a large one begins on a cache line. */
static PyObject *new_array(PyArray_Descr *dtype, int64_t rank, npy_intp *dims, int64_t bytes) {
  npy_intp length = bytes + MIRLO_ALIGNMENT;
  PyObject *memory;
  uintptr_t start;
  if (bytes < ALIGNED_FROM) {
    Py_INCREF(dtype);
    return PyArray_Empty((int)rank, dims, dtype, 0);
  }
  memory = PyArray_Empty(1, &length, PyArray_DescrFromType(NPY_UINT8), 0);
  if (!memory) return NULL;
  start = (uintptr_t)PyArray_DATA((PyArrayObject *)memory);
  return view_of(dtype, rank, dims, (void *)((start + MIRLO_ALIGNMENT - 1) & -(uintptr_t)MIRLO_ALIGNMENT), memory);
}

/* Return the array of an output of the sizes in the record: over a block, or new. NULL if it cannot be made, with
 * Python's error set or without one. */
static PyObject *new_output(const spec *s, const int64_t *record, mirlo_block *block) {
  _Alignas(16) npy_intp dims[MIRLO_MAX_RANK]; /* the same on all processors */
  uint64_t bytes;
  int64_t d;
  PyObject *owner;
  if (!mirlo_count(s->dims, s->rank, record, (uint64_t)s->bytes, (uint64_t)(block ? block->bytes : LARGE - 1), &bytes)) return NULL;
  for (d = 0; d < s->rank; ++d) dims[d] = mirlo_size(s->dims[d], record);
  if (!block) return new_array(s->dtype, s->rank, dims, (int64_t)bytes);
  owner = PyCapsule_New(block, NULL, release_owner);
  if (!owner) return NULL;
  block->used = 1;
  return view_of(s->dtype, s->rank, dims, mirlo_elements(block), owner);
}

/* Return whether an array is what a spec says; bind the sizes of its dims. */
static int fits(const spec *s, PyObject *object, int64_t *record) {
  PyArrayObject *array = (PyArrayObject *)object;
  return Py_TYPE(object) == array_type && PyArray_DESCR(array) == s->dtype && PyArray_NDIM(array) == s->rank &&
         (PyArray_FLAGS(array) & CONTIGUOUS) == CONTIGUOUS && mirlo_bind(s->dims, s->rank, PyArray_DIMS(array), record) == s->rank;
}

static PyObject *no(void) { return PyBool_FromLong(0); }

/* Call a model. `args` are the inputs, the address of the arena or 0, and its size in bytes. Return a tuple of the results;
 * False if the general path has to say what is wrong; or, if the arena is too small, the bytes that it must have. */
PyObject *mirlo_direct_call(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  const call_state *state = (const call_state *)PyBytes_AS_STRING(self);
  const int64_t inputs = state->inputs, outputs = state->outputs, before = WORDS_BEFORE(outputs);
  const spec *s = (const spec *)state->specs, *output;
  void **tensors, *arena;
  int64_t *record, i;
  PyObject *results;
  PyThreadState *thread;
  if (count != inputs + 2) return no();
  tensors = __builtin_alloca((size_t)(inputs + outputs + 1) * sizeof(void *));
  record = (int64_t *)__builtin_alloca((size_t)(before + state->words) * sizeof(int64_t)) + before;
  tensors[inputs + outputs] = state->words ? record : NULL;
  for (i = 1; i <= before; ++i) record[-i] = 0;
  mirlo_clear_record(record, state->words);
  if (state->allocates) record[state->words - 1] = (int64_t)(intptr_t)allocate;
  for (i = 0; i < inputs; ++i, s = next_spec(s)) {
    if (!fits(s, args[i], record)) return no();
    tensors[i] = PyArray_DATA((PyArrayObject *)args[i]);
  }
  arena = PyLong_AsVoidPtr(args[inputs]);
  if (state->arena_word) {
    /* Without tensors the entry function checks the sizes of the inputs, and computes those of the arena and the outputs. */
    state->entry(NULL, NULL, record, NULL);
    if (record[0]) return no();
    if (record[state->arena_word] > (int64_t)(intptr_t)PyLong_AsVoidPtr(args[inputs + 1])) {
      return PyLong_FromLongLong(record[state->arena_word]);
    }
  }
  results = PyTuple_New(outputs);
  if (!results) return NULL;
  for (i = 0, output = s; i < outputs; ++i, output = next_spec(output)) {
    PyObject *array;
    tensors[inputs + i] = NULL;
    if (output->late) continue;
    array = new_output(output, record, NULL);
    if (!array) goto refused;
    PyTuple_SetItem(results, i, array);
    tensors[inputs + i] = PyArray_DATA((PyArrayObject *)array);
  }
  if (state->allocates) { /* this call has the spare blocks for itself */
    SPARE(record) = *state->spare;
    *state->spare = NULL;
  }
  thread = PyEval_SaveThread();
  state->entry(tensors, state->params, arena, NULL);
  PyEval_RestoreThread(thread);
  if (state->words && record[0]) goto refused; /* sizes that depend on data, and conditions */
  for (i = 0, output = s; state->allocates && i < outputs; ++i, output = next_spec(output)) {
    PyObject *array;
    if (!output->late) continue;
    array = BLOCK_OF(record, i) ? new_output(output, record, BLOCK_OF(record, i)) : NULL;
    if (!array) goto refused;
    PyTuple_SetItem(results, i, array);
  }
  if (state->allocates) keep_blocks(record, state->spare);
  return results;
refused:
  PyErr_Clear();
  Py_DECREF(results);
  keep_blocks(record, state->spare);
  return no();
}
