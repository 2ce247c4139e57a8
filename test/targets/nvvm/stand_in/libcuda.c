/* Stands in for NVIDIA's driver where the real bindings are to be tested: memory is that of the CPU, launches and what
   kernels are given are written to the file that STAND_IN_LOG names, nothing is computed. As the driver does, it refuses
   what needs a context without one, and what may not be done while a graph is recorded. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int status;
typedef uint64_t address;
enum { OK = 0, INVALID_VALUE = 1, NO_CONTEXT = 201, INVALID_PTX = 218, NOT_FOUND = 500, CAPTURE_UNSUPPORTED = 900 };

struct function { char name[128]; int count; int sizes[64]; };

static void *current;
static int recording;
static uintptr_t next_event = 0x8000;

static status say(const char *format, ...) {
  static FILE *file;
  if (!file) file = fopen(getenv("STAND_IN_LOG"), "a");
  va_list rest;
  va_start(rest, format);
  vfprintf(file, format, rest);
  va_end(rest);
  fputc('\n', file);
  fflush(file);
  return OK;
}

/* What waits for the device, or changes memory: not without a context, nor while a graph is recorded. */
static status may(void) { return !current ? NO_CONTEXT : recording ? CAPTURE_UNSUPPORTED : OK; }

static void *memory(size_t size) {
  size_t whole = (size + 4095) / 4096 * 4096;
  return memset(aligned_alloc(4096, whole), 0, whole);
}

static status init(unsigned flags) { return OK; }
static status count(int *number) { return *number = 1, OK; }
static status device(int *handle, int number) { return *handle = number, OK; }
static status attribute(int *value, int kind, int handle) {
  return *value = kind == 75 ? 9 : kind == 76 ? 0 : kind == 16 ? 132 : 0, OK;
}
static status name(char *text, int size, int handle) { return snprintf(text, size, "a driver that stands in"), OK; }
static status retain(void **context, int handle) { return *context = (void *)0x51, OK; }
static status enter(void *context) { return current = context, OK; }
static status where(void **context) { return *context = current, OK; }
static status allocate(address *made, size_t size) {
  if (may()) return may();
  return size ? *made = (address)memory(size), say("allocate %zu", size) : INVALID_VALUE;
}
static status release(address made) { return free((void *)made), OK; }
static status pin(void **made, size_t size, unsigned flags) {
  if (may()) return may();
  return size ? *made = memory(size), say("pin %zu", size) : INVALID_VALUE;
}
static status unpin(void *made) { return free(made), OK; }
static status upload(address to, const void *from, size_t size) {
  return may() ? may() : (memcpy((void *)to, from, size), say("upload %zu", size));
}
static status fetch(void *to, address from, size_t size) {
  return may() ? may() : (memcpy(to, (void *)from, size), say("fetch %zu", size));
}
static status upload_later(address to, const void *from, size_t size, void *stream) {
  return memcpy((void *)to, from, size), say("upload %zu on %p", size, stream);
}
static status fetch_later(void *to, address from, size_t size, void *stream) {
  return memcpy(to, (void *)from, size), say("fetch %zu on %p", size, stream);
}
static status copy_later(address to, address from, size_t size, void *stream) {
  return memcpy((void *)to, (void *)from, size), say("copy %zu on %p", size, stream);
}
static status wait_all(void) { return may(); }
static status make_stream(void **stream, unsigned flags) { return *stream = (void *)0x5000, say("stream flags %u", flags); }
static status drop(void *thing) { return OK; }
static status wait_stream(void *stream) { return may() ? may() : say("wait for %p", stream); }
static status hold(void *stream, void *event, unsigned flags) { return say("hold %p", stream); }
static status record(void *stream, int mode) { return recording = 1, say("record %p mode %d", stream, mode); }
static status recorded(void *stream, void **graph) { return recording = 0, *graph = (void *)0x6000, OK; }
static status prepare(void **made, void *graph, unsigned long long flags) {
  return *made = (void *)0x7000, say("prepare %p flags %llu", graph, flags);
}
static status run(void *graph, void *stream) { return say("run %p on %p", graph, stream); }
static status make_event(void **event, unsigned flags) {
  if (!current) return NO_CONTEXT;
  return *event = (void *)(next_event += 16), OK;
}
static status mark(void *event, void *stream) { return say("mark %p", stream); }
static status mark_with(void *event, void *stream, unsigned flags) {
  return recording && flags == 1 ? say("mark in a graph") : CAPTURE_UNSUPPORTED;
}
static status ask(void *event) { return OK; }
static status elapsed(float *milliseconds, void *first, void *second) {
  return *milliseconds = ((uintptr_t)second - (uintptr_t)first) / 16.0f, OK;
}

static status load(void **module, const char *code) {
  return recording ? CAPTURE_UNSUPPORTED : (*module = strdup(code), say("load %.9s", code));
}
static status load_with(void **module, const char *code, unsigned options, int *names, void **values) {
  size_t room = 0;
  for (unsigned i = 0; i < options; i++)
    if (names[i] == 6) room = (size_t)values[i];
  if (!strstr(code, "no.global")) return load(module, code);
  for (unsigned i = 0; i < options; i++)
    if (names[i] == 5) snprintf(values[i], room, "ptxas fatal : no such instruction");
  return INVALID_PTX;
}
static status find(struct function **found, const char *module, const char *name) {
  char entry[160];
  snprintf(entry, sizeof entry, ".entry %s(", name);
  const char *at = strstr(module, entry);
  if (!at) return NOT_FOUND;
  struct function *made = calloc(1, sizeof *made);
  snprintf(made->name, sizeof made->name, "%s", name);
  const char *end = strchr(at + strlen(entry), ')');
  for (const char *p = strstr(at, ".param "); p && p < end; p = strstr(p + 7, ".param ")) {
    const char *bracket = memchr(p, '[', strpbrk(p, ",\n") - p);
    made->sizes[made->count++] = bracket ? atoi(bracket + 1) : 8;
  }
  return *found = made, OK;
}
static status allow(struct function *f, int what, int value) { return say("%s may have %d of %d", f->name, value, what); }
static status load_function(struct function *f) { return recording ? CAPTURE_UNSUPPORTED : say("%s is loaded", f->name); }
static status launch(
    struct function *f, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz, unsigned shared,
    void *stream, void **values, void **extra) {
  if (extra || !x || !y || !z || y > 65535 || z > 65535) return INVALID_VALUE;
  say("%s: %u x %u x %u of %u x %u x %u, %u bytes, on %p", f->name, x, y, z, tx, ty, tz, shared, stream);
  for (int i = 0; i < f->count; i++) {
    if (f->sizes[i] == 8) say("  %d: %llu", i, *(unsigned long long *)values[i]);
    else say("  %d: %d bytes, %d over: %s", i, f->sizes[i], (int)((uintptr_t)values[i] % 128), (char *)values[i]);
  }
  return OK;
}
static status belongs(int *value, int what, address to) { return *value = 0, OK; }
static status encode(
    char *map, int kind, unsigned rank, void *to, const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
    const uint32_t *steps, int interleave, int swizzle, int promotion, int fill) {
  if ((uintptr_t)map % 128 || (uintptr_t)to % 16 || rank != 2 || strides[0] % 16) return INVALID_VALUE;
  if (box[0] > 256 || box[1] > 256 || steps[0] != 1 || steps[1] != 1 || interleave || fill) return INVALID_VALUE;
  snprintf(map, 128, "kind %d dims %d %d lines %d box %u %u swizzle %d promotion %d", kind, (int)dims[0], (int)dims[1],
           (int)strides[0], box[0], box[1], swizzle, promotion);
  return OK;
}

static const struct { const char *name; void *function; } known[] = {
    {"cuInit", init}, {"cuDeviceGetCount", count}, {"cuDeviceGet", device}, {"cuDeviceGetAttribute", attribute},
    {"cuDeviceGetName", name},
    {"cuDevicePrimaryCtxRetain", retain}, {"cuCtxSetCurrent", enter}, {"cuCtxGetCurrent", where},
    {"cuCtxSynchronize", wait_all}, {"cuMemAlloc", allocate}, {"cuMemFree", release}, {"cuMemHostAlloc", pin},
    {"cuMemFreeHost", unpin}, {"cuMemcpyHtoD", upload}, {"cuMemcpyDtoH", fetch}, {"cuMemcpyHtoDAsync", upload_later},
    {"cuMemcpyDtoHAsync", fetch_later}, {"cuMemcpyDtoDAsync", copy_later}, {"cuStreamCreate", make_stream},
    {"cuStreamDestroy", drop}, {"cuStreamSynchronize", wait_stream}, {"cuStreamWaitEvent", hold},
    {"cuStreamBeginCapture", record}, {"cuStreamEndCapture", recorded}, {"cuGraphInstantiate", prepare},
    {"cuGraphInstantiateWithFlags", prepare}, {"cuGraphLaunch", run}, {"cuGraphDestroy", drop},
    {"cuGraphExecDestroy", drop}, {"cuEventCreate", make_event}, {"cuEventRecord", mark}, {"cuEventQuery", ask},
    {"cuEventRecordWithFlags", mark_with},
    {"cuEventSynchronize", ask}, {"cuEventElapsedTime", elapsed}, {"cuEventDestroy", drop}, {"cuModuleLoadData", load},
    {"cuModuleLoadDataEx", load_with}, {"cuModuleUnload", drop}, {"cuModuleGetFunction", find},
    {"cuFuncSetAttribute", allow}, {"cuFuncLoad", load_function}, {"cuLaunchKernel", launch},
    {"cuPointerGetAttribute", belongs}, {"cuTensorMapEncodeTiled", encode},
};

status cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *state) {
  *found = !strcmp(name, "cuGetProcAddress") ? (void *)cuGetProcAddress_v2 : 0;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(name, known[i].name)) *found = known[i].function;
  if (state) *state = *found ? 0 : 1;
  return *found ? OK : NOT_FOUND;
}
