/* The process of one model: what ends it ends neither the runner nor other models. */
#include "mirlo.h"
#include "runner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  int inputs_file, results_file;
  mirlo_model *model;
  mirlo_context *context;
  const mirlo_code *code;
  DLTensor *inputs, *outputs;
  int is_ready; /* whether there are inputs */
  uint64_t written;
  answer said;
} runner;

static int fail(runner *r, const char *text) {
  r->said.failed = 1;
  snprintf(r->said.message, sizeof r->said.message, "%s", text);
  return 1;
}

static void *aligned(size_t bytes) {
  void *memory = NULL;
  return bytes > SIZE_MAX - 64 || posix_memalign(&memory, 64, bytes + 64) ? NULL : memory;
}

static int read_file(int file, void *to, uint64_t bytes, uint64_t at) {
  char *memory = (char *)to;
  while (bytes) {
    ssize_t count = pread(file, memory, bytes < ((size_t)1 << 30) ? (size_t)bytes : (size_t)1 << 30, (off_t)at);
    if (count <= 0) return 1;
    memory += count;
    at += (uint64_t)count;
    bytes -= (uint64_t)count;
  }
  return 0;
}

static int write_results(runner *r, const void *from, uint64_t bytes) {
  const char *memory = (const char *)from;
  while (bytes) {
    ssize_t count = pwrite(r->results_file, memory, bytes < ((size_t)1 << 30) ? (size_t)bytes : (size_t)1 << 30, (off_t)r->written);
    if (count <= 0) return fail(r, "the results cannot be written: is the folder of the runner full?");
    memory += count;
    r->written += (uint64_t)count;
    bytes -= (uint64_t)count;
  }
  return 0;
}

static int64_t *make_shape(int32_t ndim) { return (int64_t *)calloc((size_t)ndim + 1, sizeof(int64_t)); }

static int open_model(runner *r, const char *library, const char *weights, int32_t threads) {
  mirlo_options options;
  char error[256] = "";
  int i;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.threads = threads;
  options.weights_path = weights;
  if (mirlo_open(library, "model", &options, &r->model, error, sizeof error)) return fail(r, error);
  if (mirlo_context_create(r->model, &r->context)) return fail(r, "there is no memory for a model");
  r->code = mirlo_code_of(r->model);
  r->inputs = (DLTensor *)calloc((size_t)r->code->inputs + 1, sizeof *r->inputs);
  r->outputs = (DLTensor *)calloc((size_t)r->code->outputs + 1, sizeof *r->outputs);
  if (!r->inputs || !r->outputs) return fail(r, "there is no memory for a model");
  for (i = 0; i < r->code->inputs + r->code->outputs; ++i) {
    DLTensor *tensor = i < r->code->inputs ? &r->inputs[i] : &r->outputs[i - r->code->inputs];
    tensor->device.device_type = kDLCPU;
    tensor->dtype = r->code->values[i].dtype;
    tensor->ndim = r->code->values[i].ndim;
    tensor->shape = make_shape(tensor->ndim);
    if (!tensor->shape) return fail(r, "there is no memory for a model");
  }
  return 0;
}

/* Read dims and data of each input, which must be all that there is. */
static int read_inputs(runner *r, uint64_t bytes) {
  uint64_t at = 0;
  int i;
  for (i = 0; i < r->code->inputs; ++i) {
    DLTensor *tensor = &r->inputs[i];
    uint64_t dims = (uint64_t)tensor->ndim * sizeof(int64_t), size;
    if (dims > bytes - at || read_file(r->inputs_file, tensor->shape, dims, at)) return fail(r, "the inputs are too short");
    at += dims;
    size = mirlo_bytes(tensor);
    if (size > bytes - at) return fail(r, "the inputs are too short");
    free(tensor->data);
    tensor->data = aligned((size_t)size);
    if (!tensor->data) return fail(r, "there is no memory for the inputs");
    if (read_file(r->inputs_file, tensor->data, size, at)) return fail(r, "the inputs cannot be read");
    at += size;
  }
  return at == bytes ? 0 : fail(r, "there are more inputs than the model has");
}

static int is_late(const runner *r, int output) { return r->code->values[r->code->inputs + output].late; }

static int take_inputs(runner *r, uint64_t bytes) {
  int i;
  r->is_ready = 0;
  if (read_inputs(r, bytes)) return 1;
  if (mirlo_shapes(r->context, r->inputs, r->outputs)) return fail(r, mirlo_message(r->context));
  for (i = 0; i < r->code->outputs; ++i) {
    if (is_late(r, i)) continue;
    free(r->outputs[i].data);
    r->outputs[i].data = aligned(mirlo_bytes(&r->outputs[i]));
    if (!r->outputs[i].data) return fail(r, "there is no memory for the outputs");
  }
  r->is_ready = 1;
  return 0;
}

static int call(runner *r, uint64_t *stamps) {
  int i;
  for (i = 0; i < r->code->outputs; ++i) {
    if (is_late(r, i)) r->outputs[i].data = NULL;
  }
  return mirlo_profile(r->context, r->inputs, r->outputs, stamps) ? fail(r, mirlo_message(r->context)) : 0;
}

static uint64_t nanoseconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void rest(uint64_t pause_ns) {
  struct timespec left = {(time_t)(pause_ns / 1000000000u), (long)(pause_ns % 1000000000u)};
  while (pause_ns && nanosleep(&left, &left) && errno == EINTR) continue;
}

static int time_calls(runner *r, const order *wanted, uint64_t *times, uint64_t *stamps) {
  clockid_t clock = wanted->flags & CPU_TIME ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
  uint32_t i;
  for (i = 0; i < wanted->warm; ++i) {
    if (call(r, NULL)) return 1;
  }
  for (i = 0; i < wanted->calls; ++i) {
    rest(wanted->pause_ns);
    times[2 * (size_t)i] = nanoseconds(clock);
    if (call(r, stamps ? stamps + (size_t)i * wanted->stamps : NULL)) return 1;
    times[2 * (size_t)i + 1] = nanoseconds(clock);
  }
  return 0;
}

static int write_outputs(runner *r) {
  int i;
  for (i = 0; i < r->code->outputs; ++i) {
    const DLTensor *tensor = &r->outputs[i];
    if (write_results(r, tensor->shape, (uint64_t)tensor->ndim * sizeof(int64_t))) return 1;
    if (write_results(r, tensor->data, mirlo_bytes(tensor))) return 1;
  }
  return 0;
}

/* Write the times of calls, before and after each, then their stamps, then the outputs. */
static int run(runner *r, const order *wanted) {
  size_t times_bytes = (size_t)wanted->calls * 2 * sizeof(uint64_t);
  size_t stamps_bytes = (size_t)wanted->calls * wanted->stamps * sizeof(uint64_t);
  uint64_t *times = (uint64_t *)malloc(times_bytes + 1);
  uint64_t *stamps = wanted->stamps ? (uint64_t *)calloc(1, stamps_bytes + 1) : NULL;
  int failed;
  r->written = 0;
  if (!r->is_ready) {
    failed = fail(r, "the model has no inputs yet");
  } else if (!times || (wanted->stamps && !stamps)) {
    failed = fail(r, "there is no memory for so many times");
  } else {
    failed = time_calls(r, wanted, times, stamps) || write_results(r, times, times_bytes) || (stamps && write_results(r, stamps, stamps_bytes)) ||
             ((wanted->flags & WANT_OUTPUTS) && write_outputs(r));
  }
  free(times);
  free(stamps);
  r->said.bytes = r->written;
  return failed;
}

_Noreturn void run_model(int orders, int inputs, int results, const char *library, const char *weights, int32_t threads) {
  runner own, *r = &own;
  order next;
  memset(r, 0, sizeof *r);
  r->inputs_file = inputs;
  r->results_file = results;
  open_model(r, library, weights, threads);
  while (send(orders, &r->said, sizeof r->said, 0) == (ssize_t)sizeof r->said) {
    memset(&r->said, 0, sizeof r->said);
    if (recv(orders, &next, sizeof next, MSG_WAITALL) != (ssize_t)sizeof next) break;
    if (next.kind == INPUTS) {
      take_inputs(r, next.bytes);
    } else {
      run(r, &next);
    }
  }
  _exit(0);
}
