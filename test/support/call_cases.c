/* Runs the functions of mirlo_call.h on cases of 64-bit numbers from a file, each in memory of exactly its size; prints what they return. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mirlo_call.h"

static FILE *file;

static int read_number(int64_t *number) { return fread(number, sizeof *number, 1, file) == 1; }

static int64_t *read_numbers(int64_t count) {
  int64_t *numbers = (int64_t *)malloc(count ? (size_t)count * sizeof *numbers : 1), i;
  if (!numbers) exit(2);
  for (i = 0; i < count; ++i) {
    if (!read_number(&numbers[i])) exit(3);
  }
  return numbers;
}

static void run_spec(void) {
  int64_t rank, length, words, item, most, *dims, *shape, *strides, *record, w, bound;
  uint64_t bytes = 0;
  if (!read_number(&rank) || !read_number(&length) || !read_number(&words) || !read_number(&item) || !read_number(&most)) exit(3);
  dims = read_numbers(length);
  shape = read_numbers(length);
  strides = read_numbers(length);
  if (!mirlo_is_spec(dims, rank, words)) {
    printf("refused\n");
  } else {
    record = (int64_t *)malloc(words ? (size_t)words * sizeof *record : 1);
    if (!record) exit(2);
    mirlo_clear_record(record, words);
    bound = mirlo_bind(dims, rank, shape, record);
    printf("%lld", (long long)bound);
    for (w = 0; w < words; ++w) printf(" %lld", (long long)record[w]);
    printf(" | %d", mirlo_count(dims, rank, record, (uint64_t)item, (uint64_t)most, &bytes));
    printf(" %d", mirlo_count(shape, 0, record, (uint64_t)item, (uint64_t)most, &bytes));
    if (mirlo_count(dims, rank, record, (uint64_t)item, (uint64_t)most, &bytes)) printf(" %llu", (unsigned long long)bytes);
    printf(" | %d %d\n", mirlo_is_contiguous(shape, strides, rank), mirlo_is_contiguous(shape, NULL, rank));
    free(record);
  }
  free(dims);
  free(shape);
  free(strides);
}

static void run_blocks(void) {
  int64_t count, bytes, most, i, *sizes;
  mirlo_block *first = NULL, **last = &first, **found;
  if (!read_number(&count) || !read_number(&bytes) || !read_number(&most)) exit(3);
  sizes = read_numbers(2 * count);
  for (i = 0; i < count; ++i) {
    mirlo_block *block = (mirlo_block *)malloc((size_t)MIRLO_BLOCK_BYTES);
    char *elements;
    if (!block) exit(2);
    block->next = NULL;
    block->bytes = sizes[2 * i];
    block->used = sizes[2 * i + 1];
    elements = mirlo_elements(block);
    if ((uintptr_t)elements % MIRLO_ALIGNMENT || elements < (char *)(block + 1) || elements > (char *)block + MIRLO_BLOCK_BYTES) exit(4);
    *last = block;
    last = &block->next;
  }
  found = mirlo_find_block(&first, bytes, most);
  printf("%lld\n", found ? (long long)(*found)->bytes : -1LL);
  while (first) {
    mirlo_block *next = first->next;
    free(first);
    first = next;
  }
  free(sizes);
}

int main(int count, char **arguments) {
  int64_t kind;
  file = count > 1 ? fopen(arguments[1], "rb") : NULL;
  if (!file) return 1;
  while (read_number(&kind)) {
    if (kind) {
      run_blocks();
    } else {
      run_spec();
    }
  }
  return 0;
}
