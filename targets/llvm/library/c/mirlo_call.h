/* What a call does with specs, sizes and memory, for mirlo.c and for the call from NumPy (direct.c). C99; nothing here
 * allocates memory or calls a function.
 *
 * The call record is words of 64 bits: an error and its value, then the symbols, then the computed sizes. A dim of a spec
 * is a size, or, below 0, minus the number of a word of the record. */
#ifndef MIRLO_CALL_H
#define MIRLO_CALL_H

#include <stddef.h>
#include <stdint.h>

#define MIRLO_FIRST_WORD 2 /* of the sizes in a call record */
#define MIRLO_MAX_RANK 64
#define MIRLO_ALIGNMENT 64 /* of what a model reads and writes */
#define MIRLO_UNBOUND (-1) /* a word without a size */

/* Return whether the dims of a spec can be used with a record of so many words; the other functions require that. */
static inline int mirlo_is_spec(const int64_t *dims, int64_t rank, int64_t words) {
  int64_t d;
  if (rank < 0 || rank > MIRLO_MAX_RANK || words < 0) return 0;
  for (d = 0; d < rank; ++d) {
    if (dims[d] < 0 && (dims[d] > -MIRLO_FIRST_WORD || dims[d] <= -words)) return 0;
  }
  return 1;
}

/* Prepare the record of a call: no error, and no size is known. */
static inline void mirlo_clear_record(int64_t *record, int64_t words) {
  int64_t w;
  for (w = 0; w < words; ++w) record[w] = w < MIRLO_FIRST_WORD ? 0 : MIRLO_UNBOUND;
}

/* Return the size of a dim. */
static inline int64_t mirlo_size(int64_t dim, const int64_t *record) { return dim < 0 ? record[-dim] : dim; }

/* Compare a shape with the dims of a spec, and bind the symbols that have no size yet. Return the number of the first dim
 * that differs, or is negative; `rank` if there is none. */
static inline int64_t mirlo_bind(const int64_t *dims, int64_t rank, const int64_t *shape, int64_t *record) {
  int64_t d;
  for (d = 0; d < rank; ++d) {
    int64_t dim = dims[d], size = shape[d];
    if (dim < 0) {
      int64_t bound = record[-dim];
      if ((bound != size && bound != MIRLO_UNBOUND) || size < 0) return d;
      record[-dim] = size;
    } else if (dim != size) {
      return d;
    }
  }
  return rank;
}

/* Multiply a number of bytes; return whether the product is at most `most`. */
static inline int mirlo_multiply(uint64_t *bytes, uint64_t size, uint64_t most) {
  if ((*bytes | size) >> 32 && size && *bytes > most / size) return 0;
  *bytes *= size;
  return *bytes <= most;
}

/* Count the bytes of a contiguous tensor with elements of `item` bytes; a tensor with a dim of 0 has none. Return whether
 * no dim is negative and the bytes are at most `most`. */
static inline int mirlo_count(const int64_t *dims, int64_t rank, const int64_t *record, uint64_t item, uint64_t most,
                              uint64_t *bytes) {
  int is_empty = 0, has_room = item <= most;
  int64_t d;
  *bytes = item;
  for (d = 0; d < rank; ++d) {
    int64_t size = mirlo_size(dims[d], record);
    if (size < 0) return 0;
    is_empty |= !size;
    has_room = has_room && mirlo_multiply(bytes, (uint64_t)size, most);
  }
  if (is_empty) *bytes = 0;
  return has_room || is_empty;
}

/* Return whether strides are those of a contiguous tensor; those of dims of 1 may be any. */
static inline int mirlo_is_contiguous(const int64_t *shape, const int64_t *strides, int64_t rank) {
  uint64_t stride = 1; /* wraps around for dims that no memory has */
  int64_t d;
  for (d = rank - 1; strides && d >= 0; --d) {
    if (shape[d] != 1 && (uint64_t)strides[d] != stride) return 0;
    stride *= (uint64_t)shape[d];
  }
  return 1;
}

/* Memory for a tensor whose size depends on data: this, then its elements on a multiple of `MIRLO_ALIGNMENT`. */
typedef struct mirlo_block {
  struct mirlo_block *next;
  int64_t bytes, used; /* bytes of elements; not 0: in use */
} mirlo_block;

/* The bytes of a block beyond its elements. */
#define MIRLO_BLOCK_BYTES ((int64_t)sizeof(mirlo_block) + MIRLO_ALIGNMENT)

static inline char *mirlo_elements(mirlo_block *block) {
  uintptr_t behind = (uintptr_t)(block + 1);
  return (char *)(block + 1) + (MIRLO_ALIGNMENT - behind % MIRLO_ALIGNMENT) % MIRLO_ALIGNMENT;
}

/* Find the smallest unused block with room for `bytes`, and no more than `most`. Return the link to it; NULL if there is none. */
static inline mirlo_block **mirlo_find_block(mirlo_block **link, int64_t bytes, int64_t most) {
  mirlo_block **best = NULL;
  for (; *link; link = &(*link)->next) {
    const mirlo_block *block = *link;
    if (!block->used && block->bytes >= bytes && block->bytes <= most && (!best || block->bytes < (*best)->bytes)) best = link;
  }
  return best;
}

#endif
