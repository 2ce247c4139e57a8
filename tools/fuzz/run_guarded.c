/* Runs the calls of a model in memory between pages that cannot be touched, each four times: memory ends at such a page, or
 * begins behind one, and is filled with one of two bytes before the call.
 * run_guarded CALLS RESULTS; linked with -DMODEL=mirlo_model_NAME. CALLS has, for each call, dims and data of each input;
 * RESULTS gets, for each call, a status and, where that is 0, dims and data of each output. What is wrong goes to stderr. */
#include "mirlo.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_BYTES ((uint64_t)1 << 28) /* of one piece: filling more takes long, and shows nothing else */
#define MAX_PIECES 4096

extern const mirlo_code MODEL;

typedef struct {
  unsigned char *pages, *start, *stop; /* between pages that cannot be touched, and the piece in them */
  size_t bytes;                        /* of the pages */
} piece;

static piece pieces[MAX_PIECES];
static int count, call, at_end;
static unsigned char fill;
static size_t page;

static int fail(const char *what) {
  fprintf(stderr, "call %d: %s\n", call, what);
  return 1;
}

static void stop(int number) {
  const char *what = number == SIGFPE ? ": a division trapped" : ": an access outside of memory";
  char digit = (char)('0' + call % 10);
  if (write(2, "call ", 5) < 0 || write(2, &digit, 1) < 0 || write(2, what, strlen(what)) < 0) _exit(1);
  _exit(1);
}

static void *guarded(uint64_t bytes, size_t alignment) {
  piece *made = &pieces[count];
  char *whole;
  if (bytes > MAX_BYTES || count == MAX_PIECES) return NULL;
  made->bytes = ((size_t)bytes + page) / page * page; /* one byte at least */
  whole = (char *)mmap(NULL, made->bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (whole == (char *)MAP_FAILED) return NULL;
  made->pages = (unsigned char *)whole + page;
  if (mprotect(made->pages, made->bytes, PROT_READ | PROT_WRITE)) return NULL;
  memset(made->pages, fill, made->bytes);
  made->start = made->pages + (at_end ? (made->bytes - (size_t)bytes) / alignment * alignment : 0);
  made->stop = made->start + (size_t)bytes;
  ++count;
  return made->start;
}

static void *allocate(void *user, size_t bytes) {
  (void)user;
  return guarded(bytes, 1);
}

static void release(void *user, void *memory) {
  int i;
  (void)user;
  for (i = 0; i < count; ++i) {
    if (pieces[i].start != memory) continue;
    pieces[i].start = NULL;
    munmap(pieces[i].pages - page, pieces[i].bytes + 2 * page);
    return;
  }
  fail("memory is released that was not allocated");
  _exit(1);
}

static int is_filled(const unsigned char *from, const unsigned char *to) {
  for (; from < to; ++from) {
    if (*from != fill) return 0;
  }
  return 1;
}

static int are_bounds_kept(void) {
  int i;
  for (i = 0; i < count; ++i) {
    const piece *each = &pieces[i];
    if (!each->start) continue;
    if (!is_filled(each->pages, each->start) || !is_filled(each->stop, each->pages + each->bytes)) return 0;
  }
  return 1;
}

static size_t alignment_of(const DLTensor *tensor) { return tensor->dtype.bits < 16 ? 1 : tensor->dtype.bits / 8u; }

static int read_input(FILE *file, const mirlo_value *value, DLTensor *tensor) {
  size_t bytes;
  memset(tensor, 0, sizeof *tensor);
  tensor->device.device_type = kDLCPU;
  tensor->dtype = value->dtype;
  tensor->ndim = value->ndim;
  tensor->shape = (int64_t *)guarded((uint64_t)value->ndim * sizeof(int64_t), sizeof(int64_t));
  if (!tensor->shape || fread(tensor->shape, sizeof(int64_t), (size_t)value->ndim, file) != (size_t)value->ndim) return 1;
  bytes = mirlo_bytes(tensor);
  tensor->data = guarded(bytes, alignment_of(tensor));
  if (!tensor->data || fread(tensor->data, 1, bytes, file) != bytes) return 1;
  return mprotect(pieces[count - 1].pages, pieces[count - 1].bytes, PROT_READ) != 0;
}

typedef struct {
  char *content;
  size_t bytes;
} text;

static void append(text *to, const void *from, size_t bytes) {
  to->content = (char *)realloc(to->content, to->bytes + bytes + 1);
  if (!to->content) abort();
  memcpy(to->content + to->bytes, from, bytes);
  to->bytes += bytes;
}

static int compute(mirlo_context *context, const mirlo_code *code, DLTensor *inputs, DLTensor *outputs) {
  int i, status;
  for (i = 0; i < code->outputs; ++i) {
    const mirlo_value *value = &code->values[code->inputs + i];
    memset(&outputs[i], 0, sizeof outputs[i]);
    outputs[i].shape = (int64_t *)guarded((uint64_t)value->ndim * sizeof(int64_t), sizeof(int64_t));
    if (!outputs[i].shape) return MIRLO_MEMORY;
  }
  status = mirlo_shapes(context, inputs, outputs);
  for (i = 0; status == MIRLO_OK && i < code->outputs; ++i) {
    if (code->values[code->inputs + i].late) continue;
    outputs[i].data = guarded(mirlo_bytes(&outputs[i]), alignment_of(&outputs[i]));
    if (!outputs[i].data) return MIRLO_MEMORY;
  }
  return status == MIRLO_OK ? mirlo_run(context, inputs, outputs) : status;
}

static int run(FILE *file, DLTensor *inputs, DLTensor *outputs, text *results) {
  mirlo_options options = {sizeof options};
  mirlo_model *model;
  mirlo_context *context;
  char error[256] = "";
  int32_t status;
  int i;
  count = 0;
  options.allocate = allocate;
  options.release = release;
  if (mirlo_create(&MODEL, &options, &model, error, sizeof error) != MIRLO_OK) return fail(error);
  if (mirlo_context_create(model, &context) != MIRLO_OK) return fail("there is no context");
  for (i = 0; i < MODEL.inputs; ++i) {
    if (read_input(file, &MODEL.values[i], &inputs[i])) return fail("an input cannot be read");
  }
  status = compute(context, &MODEL, inputs, outputs);
  append(results, &status, sizeof status);
  for (i = 0; status == MIRLO_OK && i < MODEL.outputs; ++i) {
    const size_t bytes = mirlo_bytes(&outputs[i]);
    if (bytes > MAX_BYTES) return fail("an output is larger than memory");
    append(results, outputs[i].shape, (size_t)outputs[i].ndim * sizeof(int64_t));
    append(results, outputs[i].data, bytes);
  }
  if (!are_bounds_kept()) return fail("bytes beside memory of the call were overwritten");
  mirlo_context_destroy(context);
  mirlo_close(model);
  for (i = 0; i < count; ++i) {
    if (pieces[i].start) munmap(pieces[i].pages - page, pieces[i].bytes + 2 * page);
  }
  return 0;
}

static int run_call(FILE *file, DLTensor *inputs, DLTensor *outputs, FILE *written) {
  static const unsigned char fills[] = {0x5A, 0xFF}; /* a large number in each type; NaN or -1 */
  text first = {NULL, 0};
  const long begin = ftell(file);
  int i;
  for (i = 0; i < 4; ++i) {
    text results = {NULL, 0};
    at_end = i < 2;
    fill = fills[i % 2];
    if (fseek(file, begin, SEEK_SET) || run(file, inputs, outputs, &results)) return 1;
    if (i == 0) {
      first = results;
      continue;
    }
    if (results.bytes != first.bytes || memcmp(results.content, first.content, first.bytes)) {
      return fail("its results depend on what was in memory before it");
    }
    free(results.content);
  }
  i = fwrite(first.content, 1, first.bytes, written) != first.bytes;
  free(first.content);
  return i ? fail("the results cannot be written") : 0;
}

int main(int arguments, char **names) {
  DLTensor *inputs = (DLTensor *)calloc((size_t)MODEL.inputs + 1, sizeof *inputs);
  DLTensor *outputs = (DLTensor *)calloc((size_t)MODEL.outputs + 1, sizeof *outputs);
  FILE *file, *written;
  int32_t calls;
  page = (size_t)sysconf(_SC_PAGESIZE);
  signal(SIGSEGV, stop);
  signal(SIGBUS, stop);
  signal(SIGFPE, stop);
  if (arguments < 3 || !inputs || !outputs) return fail("run_guarded CALLS RESULTS");
  file = fopen(names[1], "rb");
  written = fopen(names[2], "wb");
  if (!file || !written || fread(&calls, sizeof calls, 1, file) != 1) return fail("the calls cannot be read");
  for (call = 0; call < calls; ++call) {
    if (run_call(file, inputs, outputs, written)) return 1;
  }
  return fclose(written) != 0;
}
