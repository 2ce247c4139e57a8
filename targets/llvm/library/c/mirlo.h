/* Models compiled by Mirlo, from C99 and C++11. A model object defines `const mirlo_code mirlo_model_NAME`; mirlo.c runs it.
 *
 * Ownership: tensors are the caller's. A model owns its weights' mapping, a context its scratch memory and the outputs whose
 * sizes depend on data. Threads: a model may be used by any number of threads, a context by one at a time. Errors: each
 * function returns a status; nothing prints, exits or throws. */
#ifndef MIRLO_H
#define MIRLO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* DLPack's tensor; dlpack.h, where it is used, is included first. */
#ifndef DLPACK_DLPACK_H_
typedef enum { kDLCPU = 1 } DLDeviceType;
typedef enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6 } DLDataTypeCode;
typedef struct { DLDeviceType device_type; int32_t device_id; } DLDevice;
typedef struct { uint8_t code, bits; uint16_t lanes; } DLDataType;
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* NULL: contiguous */
  uint64_t byte_offset;
} DLTensor;
#endif

#define MIRLO_ABI 3

typedef enum {
  MIRLO_OK = 0,
  MIRLO_INPUT = 1,   /* a tensor is not what the model takes, or an argument is NULL */
  MIRLO_SIZES = 2,   /* the sizes of the inputs do not fit each other, or any memory */
  MIRLO_MEMORY = 3,  /* the allocator gave none */
  MIRLO_FILE = 4,    /* a library or a file of weights cannot be read, or is of another model */
  MIRLO_MACHINE = 5, /* the processor lacks what the code uses */
  MIRLO_VERSION = 6, /* model, mirlo.c and mirlo.h are of different versions */
  MIRLO_FUNCTION = 7 /* a packed function or a driver is missing or failed */
} mirlo_status;

/* Runs function(arguments, chunk, chunks) for every chunk, on up to `threads` threads, and returns after the last one. */
typedef void (*mirlo_parallel_fn)(void (*function)(void *, int32_t, int32_t), void *arguments, int32_t chunks, int32_t threads);
/* A packed function, which a model calls: the inputs, then the outputs, which it writes. Not 0: it failed. */
typedef int (*mirlo_packed_fn)(DLTensor **tensors, int64_t count);
/* A driver: it computes a region, which a code generator compiled, with the same tensors, and after them scratch memory as
 * a tensor of bytes, where the code generator asked for it. Not 0: it failed. */
typedef struct mirlo_region mirlo_region;
typedef int (*mirlo_driver_fn)(const mirlo_region *region, DLTensor **tensors, int64_t count);
struct mirlo_region {
  mirlo_driver_fn driver;
  const char *name;           /* "target.region" */
  void *context;              /* what options.functions names with the driver; else NULL */
  const void *program;        /* what the code generator made for the driver, on a multiple of 64; NULL: nothing */
  const void *const *weights; /* the constants that it asked for, in its order, on multiples of 64 */
  uint64_t program_bytes;
  int32_t weight_count, threads; /* at most so many threads are to be used */
};
typedef void (*mirlo_entry_fn)(void **tensors, void **params, void *arena, uint64_t *profile);

typedef struct {
  const char *name;
  DLDataType dtype;
  int32_t ndim;
  const int64_t *dims; /* a size, or, below 0, minus the number of a word of the call record */
  int32_t late;        /* whether the size of this output depends on data */
  int32_t in_place;    /* 1 + the number of the input whose memory this output may have, which it updates; 0: of none */
} mirlo_value;

typedef struct { /* a function that a model calls */
  const char *name, *symbol; /* `symbol`: the name of a region's driver; NULL: a packed function */
  mirlo_driver_fn driver;    /* the driver, if it is linked */
  mirlo_packed_fn call;      /* calls the driver that the model of a call has */
  const uint64_t *weights;   /* offsets of the constants of a region, as `program` is that of its program */
  uint64_t program, program_bytes;
  int32_t weight_count, reserved;
} mirlo_callee;

/* What a model object defines. It is constant. */
typedef struct {
  uint32_t abi;
  uint32_t dynamic; /* whether sizes are computed by each call */
  const char *name, *triple, *features;
  mirlo_entry_fn entry;
  void (*set_parallel)(mirlo_parallel_fn); /* NULL: the code uses one thread */
  int32_t inputs, outputs, params, packed, threads, allocates, words, arena_word, checks, reserved;
  const mirlo_value *values;           /* inputs, then outputs */
  const char *const *check_texts;      /* what is checked of the sizes */
  const mirlo_callee *functions;       /* packed functions and regions, in the order of their use */
  const uint64_t *offsets;             /* of each weight */
  const unsigned char *weights;        /* NULL: in a file */
  uint64_t weights_bytes, weights_digest[2], arena_bytes;
} mirlo_code;

typedef struct {
  const char *name;         /* of a packed function, of a region ("target.region"), or of the driver of regions */
  mirlo_packed_fn function; /* what is called, or NULL and */
  mirlo_driver_fn driver;   /* a driver, in place of one that is linked, with */
  void *context;            /* its region->context */
} mirlo_function;

/* Set `size` to sizeof(mirlo_options) and the rest to 0 for the defaults. */
typedef struct {
  size_t size;
  int32_t threads;                               /* at most so many; 0: as the model was compiled */
  int32_t function_count;                        /* of `functions` */
  const char *weights_path; /* of a model whose weights are in a file; default: beside the library that is opened */
  const void *weights;                           /* or that file in memory, on a multiple of 64 bytes */
  mirlo_parallel_fn parallel;                    /* in place of Mirlo's thread pool */
  void *(*allocate)(void *user, size_t bytes);   /* in place of malloc */
  void (*release)(void *user, void *memory);     /* in place of free */
  void *user;                                    /* passed to both */
  const mirlo_function *functions;               /* packed functions and drivers by name */
} mirlo_options;

typedef struct mirlo_model mirlo_model;
typedef struct mirlo_context mirlo_context;

/* Make a model of code that is linked in, or in a library. `options` may be NULL; `error`, if it is not, describes an error. */
int mirlo_create(const mirlo_code *code, const mirlo_options *options, mirlo_model **model, char *error, size_t error_bytes);
int mirlo_open(const char *library, const char *name, const mirlo_options *options, mirlo_model **model, char *error, size_t error_bytes);
void mirlo_close(mirlo_model *model); /* after its contexts; its library stays open, for its threads */
const mirlo_code *mirlo_code_of(const mirlo_model *model);
int mirlo_has_feature(const char *name); /* whether this processor has a feature that a model may use, where that can be asked; else 1 */

int mirlo_context_create(const mirlo_model *model, mirlo_context **context);
void mirlo_context_destroy(mirlo_context *context);

/* Fill in the outputs for these inputs, but for `data`: `shape` points to room for the dims; those that depend on data are -1. The data of
 * inputs are not read. */
int mirlo_shapes(mirlo_context *context, const DLTensor *inputs, DLTensor *outputs);
/* Run the model. Outputs are written to their `data`, which overlaps no other tensor, but for `in_place`. Where sizes depend on data it is NULL before and set by the call, to
 * memory of the context, until its next call. After the first call of each size no memory is allocated. */
int mirlo_run(mirlo_context *context, const DLTensor *inputs, DLTensor *outputs);
/* Run the model, and write a time stamp before each kernel and one after the last. `stamps` has room for one more than the model has kernels,
 * or is NULL. They count ticks of the processor's counter, at a rate that is the same in all calls. */
int mirlo_profile(mirlo_context *context, const DLTensor *inputs, DLTensor *outputs, uint64_t *stamps);
size_t mirlo_bytes(const DLTensor *tensor); /* of a contiguous tensor; SIZE_MAX where no memory has so many, a dim is below 0, or the tensor is NULL */
/* What was wrong with the last call. */
const char *mirlo_message(const mirlo_context *context);

#ifdef __cplusplus
}
#endif
#endif
