/* Mirlo as an execution provider of ONNX Runtime: parts of a graph are compiled to libraries, which mirlo.c runs. */
#define _POSIX_C_SOURCE 200809L
#include "provider.h"

#include <mirlo.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#ifndef MIRLO_PYTHON
#define MIRLO_PYTHON "python3"
#endif

enum { MAX_RANK = 64 };

const OrtApi *ort;
int ort_minor_version;

typedef struct {
  char python[1024], threads[16], target[256], report[1024], context_path[1024];
  bool trusts, writes_context, embeds;
} Options;

typedef struct {
  OrtEp base;
  const OrtLogger *logger;
  Options options;
} Provider;

typedef struct Idle {
  struct Idle *next;
  mirlo_context *context;
} Idle;

/* A part of a graph that is one node now. */
typedef struct {
  OrtNodeComputeInfo base;
  mirlo_model *model;
  pthread_mutex_t lock; /* of `idle` */
  Idle *idle;           /* contexts that no call uses */
  int32_t inputs, outputs;
  int32_t *input_of, *output_of; /* for each of the model: its number among those of the node */
} Part;

/* The call that this thread makes, whose threads are those of the session. */
static _Thread_local const OrtKernelContext *current;

OrtStatus *failed(const char *format, ...) {
  char text[8192];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return ORT(CreateStatus)(ORT_EP_FAIL, text);
}

/* The thread pool of mirlo.c is not used. */
void mirlo_parallel(void (*function)(void *, int32_t, int32_t), void *arguments, int32_t chunks, int32_t threads) {
  (void)threads;
  for (int32_t i = 0; i < chunks; ++i) function(arguments, i, chunks);
}
int32_t mirlo_pool_start(int32_t workers) { return (void)workers, 0; }
void mirlo_pool_reset(void) {}
void mirlo_pool_cores(const int32_t *cores, int32_t count) { (void)cores, (void)count; }

typedef struct {
  void (*function)(void *, int32_t, int32_t);
  void *arguments;
  int32_t chunks;
} Loop;

static void run_chunk(void *user, size_t chunk) {
  const Loop *loop = user;
  loop->function(loop->arguments, (int32_t)chunk, loop->chunks);
}

static void parallel(void (*function)(void *, int32_t, int32_t), void *arguments, int32_t chunks, int32_t threads) {
  Loop loop = {function, arguments, chunks};
  OrtStatus *status;
  (void)threads;
  if (chunks == 1) {
    function(arguments, 0, 1);
    return;
  }
  status = ORT(KernelContext_ParallelFor)(current, run_chunk, (size_t)chunks, 0, &loop);
  if (status) { /* the session has no threads */
    ORT(ReleaseStatus)(status);
    for (int32_t i = 0; i < chunks; ++i) function(arguments, i, chunks);
  }
}

/* Calls of a part */

static DLDataType type_of(int element) {
  static const DLDataType types[] = {
    {0, 0, 0}, {kDLFloat, 32, 1}, {kDLUInt, 8, 1}, {kDLInt, 8, 1}, {kDLUInt, 16, 1}, {kDLInt, 16, 1}, {kDLInt, 32, 1},
    {kDLInt, 64, 1}, {0, 0, 0}, {kDLBool, 8, 1}, {kDLFloat, 16, 1}, {kDLFloat, 64, 1}, {kDLUInt, 32, 1},
    {kDLUInt, 64, 1}, {0, 0, 0}, {0, 0, 0}, {kDLBfloat, 16, 1},
  };
  return element > 0 && element < (int)(sizeof types / sizeof *types) ? types[element] : types[0];
}

static OrtStatus *take_context(Part *part, Idle **idle) {
  int result;
  pthread_mutex_lock(&part->lock);
  *idle = part->idle;
  if (*idle) part->idle = (*idle)->next;
  pthread_mutex_unlock(&part->lock);
  if (*idle) return NULL;
  *idle = malloc(sizeof **idle);
  result = *idle ? mirlo_context_create(part->model, &(*idle)->context) : MIRLO_MEMORY;
  if (result == MIRLO_OK) return NULL;
  free(*idle);
  *idle = NULL;
  return failed("no memory for a call of the model");
}

static OrtStatus *read_input(OrtKernelContext *context, int32_t number, DLTensor *tensor, int64_t *dims) {
  static char none[64];
  OrtTensorTypeAndShapeInfo *info = NULL;
  const OrtValue *value = NULL;
  const void *data;
  int element;
  size_t rank;
  OrtStatus *status;
  TRY(ORT(KernelContext_GetInput)(context, (size_t)number, &value));
  if (!value) {
    status = failed("input %d is missing", (int)number);
    goto end;
  }
  TRY(ORT(GetTensorTypeAndShape)(value, &info));
  TRY(ORT(GetTensorElementType)(info, &element));
  TRY(ORT(GetDimensionsCount)(info, &rank));
  if (rank > MAX_RANK) {
    status = failed("input %d has %zu dims", (int)number, rank);
    goto end;
  }
  TRY(ORT(GetDimensions)(info, dims, rank));
  TRY(ORT(GetTensorData)(value, &data));
  *tensor = (DLTensor){data ? (void *)data : none, {kDLCPU, 0}, (int32_t)rank, type_of(element), dims, NULL, 0};
end:
  if (info) ORT(ReleaseTensorTypeAndShapeInfo)(info);
  return status;
}

static OrtStatus *output_data(OrtKernelContext *context, int32_t number, const DLTensor *tensor, void **data) {
  OrtValue *value = NULL;
  OrtStatus *status;
  TRY(ORT(KernelContext_GetOutput)(context, (size_t)number, tensor->shape, (size_t)tensor->ndim, &value));
  TRY(ORT(GetTensorMutableData)(value, data));
end:
  return status;
}

static OrtStatus *compute(OrtNodeComputeInfo *base, void *state, OrtKernelContext *context) {
  static char none[64]; /* the data of tensors without elements */
  Part *part = (Part *)base;
  const OrtKernelContext *outer = current;
  size_t count = (size_t)(part->inputs + part->outputs);
  DLTensor *tensors = calloc(count ? count : 1, sizeof *tensors), *outputs = tensors + part->inputs;
  int64_t(*dims)[MAX_RANK] = malloc((count ? count : 1) * sizeof *dims);
  bool *late = calloc(count ? count : 1, sizeof *late); /* outputs whose sizes depend on data */
  Idle *idle = NULL;
  OrtStatus *status = NULL;
  (void)state;
  if (!tensors || !dims || !late) {
    status = failed("no memory for a call of the model");
    goto end;
  }
  TRY(take_context(part, &idle));
  for (int32_t i = 0; i < part->inputs; ++i) TRY(read_input(context, part->input_of[i], tensors + i, dims[i]));
  for (int32_t i = 0; i < part->outputs; ++i) outputs[i].shape = dims[part->inputs + i];
  if (mirlo_shapes(idle->context, tensors, outputs) != MIRLO_OK) {
    status = failed("%s", mirlo_message(idle->context));
    goto end;
  }
  for (int32_t i = 0; i < part->outputs; ++i) {
    for (int32_t axis = 0; axis < outputs[i].ndim; ++axis) late[i] |= outputs[i].shape[axis] < 0;
    outputs[i].data = NULL;
    if (late[i]) continue;
    TRY(output_data(context, part->output_of[i], outputs + i, &outputs[i].data));
    if (!outputs[i].data) outputs[i].data = none;
  }
  current = context;
  if (mirlo_run(idle->context, tensors, outputs) != MIRLO_OK) {
    status = failed("%s", mirlo_message(idle->context));
    goto end;
  }
  for (int32_t i = 0; i < part->outputs; ++i) {
    void *data;
    if (!late[i]) continue;
    TRY(output_data(context, part->output_of[i], outputs + i, &data));
    memcpy(data, outputs[i].data, mirlo_bytes(outputs + i));
  }
end:
  current = outer;
  if (idle) {
    pthread_mutex_lock(&part->lock);
    idle->next = part->idle;
    part->idle = idle;
    pthread_mutex_unlock(&part->lock);
  }
  free(tensors), free(dims), free(late);
  return status;
}

static OrtStatus *create_state(OrtNodeComputeInfo *base, OrtNodeComputeContext *context, void **state) {
  (void)context;
  *state = base;
  return NULL;
}

static void release_state(OrtNodeComputeInfo *base, void *state) { (void)base, (void)state; }

static void release_part(Part *part) {
  while (part->idle) {
    Idle *idle = part->idle;
    part->idle = idle->next;
    mirlo_context_destroy(idle->context);
    free(idle);
  }
  if (part->model) mirlo_close(part->model);
  pthread_mutex_destroy(&part->lock);
  free(part->input_of), free(part->output_of), free(part);
}

static void release_parts(OrtEp *base, OrtNodeComputeInfo **parts, size_t count) {
  (void)base;
  for (size_t i = 0; i < count; ++i) release_part((Part *)parts[i]);
}

/* What the provider takes */

static OrtStatus *text_attribute(const OrtNode *node, const char *name, char *text, size_t size, size_t *length) {
  const OrtOpAttr **attributes = NULL;
  const char *found;
  size_t count, i;
  OrtStatus *status;
  *length = 0;
  TRY(ORT(Node_GetNumAttributes)(node, &count));
  attributes = malloc((count + 1) * sizeof *attributes);
  if (count) TRY(ORT(Node_GetAttributes)(node, attributes, count));
  for (i = 0; i < count; ++i) {
    TRY(ORT(OpAttr_GetName)(attributes[i], &found));
    if (strcmp(found, name)) continue;
    status = ORT(ReadOpAttr)(attributes[i], ORT_ATTR_STRING, NULL, 0, length);
    if (status) ORT(ReleaseStatus)(status);
    status = NULL;
    if (text && *length < size) {
      if (*length) TRY(ORT(ReadOpAttr)(attributes[i], ORT_ATTR_STRING, text, size, length));
      text[*length] = 0;
    }
  }
end:
  free(attributes);
  return status;
}

static OrtStatus *is_own_context(const OrtNode *node, bool *result) {
  char source[64] = "";
  const char *operator_type;
  size_t length;
  OrtStatus *status;
  *result = false;
  TRY(ORT(Node_GetOperatorType)(node, &operator_type));
  if (strcmp(operator_type, "EPContext")) goto end;
  TRY(text_attribute(node, "source", source, sizeof source, &length));
  *result = !strcmp(source, PROVIDER);
end:
  return status;
}

typedef struct {
  Provider *provider;
  const OrtNode **nodes, **group;
  int *groups;
  size_t count, seen;
  char library[2048], name[256];
} Answer;

static OrtStatus *take_line(void *user, const char *line) {
  Answer *answer = user;
  if (!strncmp(line, "group ", 6)) {
    if (answer->seen < answer->count) answer->groups[answer->seen++] = atoi(line + 6);
    return NULL;
  }
  if (!strncmp(line, "note ", 5))
    return ORT(Logger_LogMessage)(answer->provider->logger, ORT_INFO, line + 5, __FILE__, __LINE__, __func__);
  if (!strncmp(line, "library ", 8)) {
    snprintf(answer->library, sizeof answer->library, "%s", line + 8);
    return NULL;
  }
  return failed("the compiler answered '%s'", line);
}

static OrtStatus *write_for_compiler(const OrtGraph *graph, char *folder, size_t size) {
  const char *place = getenv("TMPDIR");
  snprintf(folder, size, "%s/mirlo-onnxruntime-XXXXXX", place && *place ? place : "/tmp");
  if (!mkdtemp(folder)) return failed("cannot make a folder '%s'", folder);
  return write_model(graph, folder); /* the compiler removes it */
}

/* Remove the files for the compiler, if it did not. */
static void remove_files(const char *folder) {
  char path[1100];
  snprintf(path, sizeof path, "%s/model.onnx", folder);
  unlink(path);
  snprintf(path, sizeof path, "%s/weights.bin", folder);
  unlink(path);
  rmdir(folder);
}

static OrtStatus *ask(Provider *provider, const char *what, const OrtGraph *graph, Answer *answer) {
  char folder[1024] = "", request[4096];
  const Options *options = &provider->options;
  OrtStatus *status;
  answer->provider = provider;
  TRY(write_for_compiler(graph, folder, sizeof folder));
  snprintf(request, sizeof request, "%s\t%s\t%s\t%s\t%s\n", what, folder, options->threads, options->target, options->report);
  TRY(ask_compiler(options->python, request, take_line, answer));
end:
  if (status && *folder) remove_files(folder);
  return status;
}

static OrtStatus *get_capability(OrtEp *base, const OrtGraph *graph, OrtEpGraphSupportInfo *info) {
  Provider *provider = (Provider *)base;
  const OrtNodeFusionOptions fusion = {ORT_VERSION, true};
  const OrtEpApi *api = ORT(GetEpApi)();
  const OrtNode *parent = NULL, **nodes = NULL, **group = NULL;
  Answer answer = {0};
  size_t count, i, j, size;
  bool is_context, has_context = false;
  OrtStatus *status;
  TRY(ORT(Graph_GetParentNode)(graph, &parent));
  if (parent) goto end; /* branches and loops are taken with the node that has them */
  TRY(ORT(Graph_GetNumNodes)(graph, &count));
  if (!count) goto end;
  nodes = malloc(count * sizeof *nodes);
  group = malloc(count * sizeof *group);
  answer.groups = malloc(count * sizeof *answer.groups);
  TRY(ORT(Graph_GetNodes)(graph, nodes, count));
  for (i = 0; i < count; ++i) {
    TRY(is_own_context(nodes[i], &is_context));
    if (is_context) TRY(AddNodesToFuse_(api)(info, nodes + i, 1, &fusion));
    has_context |= is_context;
  }
  if (has_context) goto end;
  answer.count = count;
  TRY(ask(provider, "capability", graph, &answer));
  if (answer.seen != count) {
    status = failed("the compiler said what it takes of %zu nodes, expected %zu", answer.seen, count);
    goto end;
  }
  for (i = 0; i < count; ++i) {
    const int number = answer.groups[i];
    if (number < 0) continue;
    for (size = 0, j = i; j < count; ++j) {
      if (answer.groups[j] != number) continue;
      group[size++] = nodes[j];
      answer.groups[j] = -1;
    }
    TRY(AddNodesToFuse_(api)(info, group, size, &fusion));
  }
end:
  free(nodes), free(group), free(answer.groups);
  return status;
}

/* Compilation */

static OrtStatus *value_names(const OrtNode *node, bool is_input, const char ***names, size_t *count) {
  const OrtValueInfo **values = NULL;
  OrtStatus *status;
  *names = NULL;
  if (is_input) TRY(ORT(Node_GetNumInputs)(node, count));
  else TRY(ORT(Node_GetNumOutputs)(node, count));
  values = malloc((*count + 1) * sizeof *values);
  *names = calloc(*count + 1, sizeof **names);
  if (is_input) TRY(ORT(Node_GetInputs)(node, values, *count));
  else TRY(ORT(Node_GetOutputs)(node, values, *count));
  for (size_t i = 0; i < *count; ++i) {
    (*names)[i] = "";
    if (values[i]) TRY(ORT(GetValueInfoName)(values[i], *names + i));
  }
end:
  free(values);
  return status;
}

static OrtStatus *numbers(const OrtNode *node, bool is_input, const mirlo_value *values, int32_t count, int32_t **result) {
  const char **names;
  size_t known, j;
  OrtStatus *status;
  TRY(value_names(node, is_input, &names, &known));
  *result = malloc(((size_t)count + 1) * sizeof **result);
  for (int32_t i = 0; i < count; ++i) {
    for (j = 0; j < known && strcmp(names[j], values[i].name); ++j) continue;
    if (j == known) {
      status = failed("the compiled part has an %s '%s', which the node does not have", is_input ? "input" : "output", values[i].name);
      break;
    }
    (*result)[i] = (int32_t)j;
  }
end:
  free(names);
  return status;
}

static OrtStatus *copy_file(const char *from, const char *to) {
  char block[1 << 16];
  size_t size;
  FILE *source = fopen(from, "rb"), *target = fopen(to, "wb");
  bool is_copied = source && target;
  while (is_copied && (size = fread(block, 1, sizeof block, source)) > 0) is_copied = fwrite(block, 1, size, target) == size;
  if (source) fclose(source);
  if (target && fclose(target)) is_copied = false;
  return is_copied ? NULL : failed("cannot copy '%s' to '%s'", from, to);
}

static OrtStatus *read_file(const char *path, char **content, size_t *size) {
  FILE *file = fopen(path, "rb");
  long end = file && !fseek(file, 0, SEEK_END) ? ftell(file) : -1;
  *content = end >= 0 ? malloc((size_t)end + 1) : NULL;
  *size = end >= 0 ? (size_t)end : 0;
  if (*content) rewind(file);
  if (*content && fread(*content, 1, *size, file) != *size) free(*content), *content = NULL;
  if (file) fclose(file);
  return *content ? NULL : failed("cannot read '%s'", path);
}

static void beside(const char *path, const char *name, char *result, size_t size) {
  const char *slash = strrchr(path, '/');
  snprintf(result, size, "%.*s%s", slash ? (int)(slash - path + 1) : 0, path, name);
}

/* Make the node that a context model has for a part: it names the library, or has it as an attribute. */
static OrtStatus *context_node(const Provider *provider, const OrtNode *fused, const char *library, OrtNode **node) {
  const Options *options = &provider->options;
  const OrtModelEditorApi *editor = ORT(GetModelEditorApi)();
  const char **inputs = NULL, **outputs = NULL, *name;
  char path[2048], file[512], *content = NULL;
  size_t input_count, output_count, size, count = 0;
  int64_t one = 1, embeds = options->embeds;
  OrtOpAttr *attributes[6] = {0};
  OrtStatus *status;
  TRY(ORT(Node_GetName)(fused, &name));
  TRY(value_names(fused, true, &inputs, &input_count));
  TRY(value_names(fused, false, &outputs, &output_count));
  if (options->embeds) {
    TRY(read_file(library, &content, &size));
    if (size > INT32_MAX) {
      status = failed("the compiled part has %zu bytes, too many for an attribute: set ep.context_embed_mode to 0", size);
      goto end;
    }
  } else {
    snprintf(file, sizeof file, "%.200s_%s.so", strrchr(options->context_path, '/') ? strrchr(options->context_path, '/') + 1 : options->context_path, name);
    beside(options->context_path, file, path, sizeof path);
    TRY(copy_file(library, path));
    content = strdup(file);
    size = strlen(content);
  }
  TRY(ORT(CreateOpAttr)("ep_cache_context", content, (int)size, ORT_ATTR_STRING, attributes + count++));
  TRY(ORT(CreateOpAttr)("main_context", &one, 1, ORT_ATTR_INT, attributes + count++));
  TRY(ORT(CreateOpAttr)("embed_mode", &embeds, 1, ORT_ATTR_INT, attributes + count++));
  TRY(ORT(CreateOpAttr)("source", PROVIDER, (int)strlen(PROVIDER), ORT_ATTR_STRING, attributes + count++));
  TRY(ORT(CreateOpAttr)("partition_name", name, (int)strlen(name), ORT_ATTR_STRING, attributes + count++));
  TRY(CreateNode_(editor)("EPContext", "com.microsoft", name, inputs, input_count, outputs, output_count, attributes, count, node));
end:
  free(inputs), free(outputs), free(content);
  return status;
}

/* Find the library of a context node. It is machine code: a model that has it runs it only if the program trusts the model. */
static OrtStatus *library_of_context(
    const Provider *provider, const OrtGraph *graph, const OrtNode *node, char *path, size_t size, bool *is_temporary) {
  const char *model = NULL;
  char *content = NULL;
  size_t length;
  int file;
  OrtStatus *status;
  if (!provider->options.trusts) {
    status = failed("the model has compiled code of Mirlo, which would run in this program: set the provider's option 'trust' to 1 if you trust where the model comes from");
    goto end;
  }
  TRY(text_attribute(node, "ep_cache_context", NULL, 0, &length));
  content = malloc(length + 1);
  TRY(text_attribute(node, "ep_cache_context", content, length + 1, &length));
  if (length < 4 || memcmp(content, "\177ELF", 4)) { /* the name of a file beside the model */
    if (strchr(content, '/') || !*content) {
      status = failed("the model names the file '%s', expected one beside it", content);
      goto end;
    }
    TRY(ORT(Graph_GetModelPath)(graph, &model));
    beside(model ? model : "", content, path, size);
    if (!strchr(path, '/')) snprintf(path, size, "./%s", content);
    goto end;
  }
  snprintf(path, size, "%s/mirlo-onnxruntime-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
  file = mkstemp(path);
  *is_temporary = file >= 0;
  if (file < 0 || write(file, content, length) != (ssize_t)length) status = failed("cannot write '%s'", path);
  if (file >= 0) close(file);
end:
  free(content);
  return status;
}

static OrtStatus *open_part(Provider *provider, const OrtNode *fused, const char *library, Part **result) {
  mirlo_options options = {.size = sizeof options, .parallel = parallel};
  Part *part = calloc(1, sizeof *part);
  const mirlo_code *code;
  char error[512];
  OrtStatus *status = NULL;
  (void)provider;
  part->base = (OrtNodeComputeInfo){ORT_VERSION, create_state, compute, release_state};
  pthread_mutex_init(&part->lock, NULL);
  if (mirlo_open(library, "part", &options, &part->model, error, sizeof error) != MIRLO_OK) {
    status = failed("%s", error);
    goto end;
  }
  code = mirlo_code_of(part->model);
  part->inputs = code->inputs;
  part->outputs = code->outputs;
  TRY(numbers(fused, true, code->values, code->inputs, &part->input_of));
  TRY(numbers(fused, false, code->values + code->inputs, code->outputs, &part->output_of));
  *result = part;
end:
  if (status) release_part(part);
  return status;
}

static OrtStatus *compile_part(Provider *provider, const OrtGraph *graph, const OrtNode *fused, Part **part, OrtNode **context) {
  const OrtNode *node;
  Answer answer = {0};
  char path[2048];
  size_t count;
  bool is_context = false, is_temporary = false;
  OrtStatus *status;
  TRY(ORT(Graph_GetNumNodes)(graph, &count));
  if (count == 1) {
    TRY(ORT(Graph_GetNodes)(graph, &node, 1));
    TRY(is_own_context(node, &is_context));
  }
  if (is_context) {
    TRY(library_of_context(provider, graph, node, path, sizeof path, &is_temporary));
    TRY(open_part(provider, fused, path, part));
    goto end;
  }
  TRY(ask(provider, "compile", graph, &answer));
  TRY(open_part(provider, fused, answer.library, part));
  if (context && provider->options.writes_context) TRY(context_node(provider, fused, answer.library, context));
end:
  if (is_temporary) unlink(path); /* what is open stays */
  return status;
}

static OrtStatus *compile(
    OrtEp *base, const OrtGraph **graphs, const OrtNode **fused, size_t count, OrtNodeComputeInfo **parts, OrtNode **contexts) {
  OrtStatus *status = NULL;
  size_t i;
  for (i = 0; i < count; ++i) {
    Part *part = NULL;
    status = compile_part((Provider *)base, graphs[i], fused[i], &part, contexts ? contexts + i : NULL);
    if (status) break;
    parts[i] = &part->base;
  }
  if (status)
    while (i-- > 0) release_part((Part *)parts[i]), parts[i] = NULL;
  return status;
}

/* The factory */

static const char *provider_name(const OrtEp *base) { return (void)base, PROVIDER; }
static const char *factory_name(const OrtEpFactory *base) { return (void)base, PROVIDER; }
static const char *vendor(const OrtEpFactory *base) { return (void)base, "Mirlo"; }
static uint32_t vendor_id(const OrtEpFactory *base) { return (void)base, 0; }
static const char *version(const OrtEpFactory *base) { return (void)base, MIRLO_EP_VERSION; }
static bool is_stream_aware(const OrtEpFactory *base) { return (void)base, false; }

static OrtStatus *supported_devices(
    OrtEpFactory *base, const OrtHardwareDevice *const *devices, size_t count, OrtEpDevice **result, size_t most, size_t *found) {
  OrtStatus *status = NULL;
  *found = 0;
  for (size_t i = 0; i < count && *found < most; ++i) {
    if (ORT(HardwareDevice_Type)(devices[i]) != ORT_CPU_DEVICE) continue;
    TRY(CreateEpDevice_(ORT(GetEpApi)())(base, devices[i], NULL, NULL, result + *found));
    ++*found;
  }
end:
  return status;
}

static OrtStatus *set_option(Options *options, const char *name, const char *value) {
  const bool is_on = !strcmp(value, "1");
  if (!strcasecmp(name, "python")) snprintf(options->python, sizeof options->python, "%s", value);
  else if (!strcasecmp(name, "threads")) snprintf(options->threads, sizeof options->threads, "%s", value);
  else if (!strcasecmp(name, "target")) snprintf(options->target, sizeof options->target, "%s", value);
  else if (!strcasecmp(name, "report")) snprintf(options->report, sizeof options->report, "%s", value);
  else if (!strcasecmp(name, "trust")) options->trusts = is_on;
  else return failed("%s has no option '%s'; its options are python, threads, target, report, trust", PROVIDER, name);
  return strpbrk(value, "\t\n") ? failed("option '%s' of %s has a tab or a line feed", name, PROVIDER) : NULL;
}

static OrtStatus *read_options(Options *options, const OrtSessionOptions *session) {
  static const char prefix[] = "ep." PROVIDER ".";
  OrtKeyValuePairs *entries = NULL;
  const char *const *keys, *const *values;
  size_t count, i;
  OrtStatus *status;
  snprintf(options->python, sizeof options->python, "%s", MIRLO_PYTHON);
  TRY(ORT(GetSessionOptionsConfigEntries)(session, &entries));
  ORT(GetKeyValuePairs)(entries, &keys, &values, &count);
  for (i = 0; i < count; ++i) {
    if (!strncasecmp(keys[i], prefix, sizeof prefix - 1)) TRY(set_option(options, keys[i] + sizeof prefix - 1, values[i]));
    else if (!strcmp(keys[i], "ep.context_enable")) options->writes_context = !strcmp(values[i], "1");
    else if (!strcmp(keys[i], "ep.context_embed_mode")) options->embeds = !strcmp(values[i], "1");
    else if (!strcmp(keys[i], "ep.context_file_path")) snprintf(options->context_path, sizeof options->context_path, "%s", values[i]);
  }
  if (options->writes_context && !options->embeds && !*options->context_path)
    status = failed("set ep.context_file_path: the compiled parts are written beside the context model");
end:
  if (entries) ORT(ReleaseKeyValuePairs)(entries);
  return status;
}

static OrtStatus *create_provider(
    OrtEpFactory *base, const OrtHardwareDevice *const *devices, const OrtKeyValuePairs *const *metadata, size_t count,
    const OrtSessionOptions *session, const OrtLogger *logger, OrtEp **result) {
  Provider *provider = calloc(1, sizeof *provider);
  OrtStatus *status;
  (void)base, (void)devices, (void)metadata, (void)count;
  if (!provider) return failed("no memory for the provider");
  provider->logger = logger;
  provider->base = (OrtEp){
    .ort_version_supported = ORT_VERSION, .GetName = provider_name, .GetCapability = get_capability, .Compile = compile,
    .ReleaseNodeComputeInfos = release_parts,
  };
  status = read_options(&provider->options, session);
  if (status) free(provider);
  else *result = &provider->base;
  return status;
}

static void release_provider(OrtEpFactory *base, OrtEp *provider) { (void)base, free(provider); }

static OrtStatus *create_allocator(OrtEpFactory *base, const OrtMemoryInfo *info, const OrtKeyValuePairs *options, OrtAllocator **result) {
  (void)base, (void)info, (void)options;
  *result = NULL;
  return NULL;
}

static void release_allocator(OrtEpFactory *base, OrtAllocator *allocator) { (void)base, (void)allocator; }

static OrtStatus *create_data_transfer(OrtEpFactory *base, OrtDataTransferImpl **result) {
  (void)base;
  *result = NULL;
  return NULL;
}

static OrtStatus *create_stream(OrtEpFactory *base, const OrtMemoryDevice *device, const OrtKeyValuePairs *options, OrtSyncStreamImpl **result) {
  (void)base, (void)device, (void)options;
  *result = NULL;
  return NULL;
}

__attribute__((visibility("default"))) OrtStatus *CreateEpFactories(
    const char *name, const OrtApiBase *base, const OrtLogger *logger, OrtEpFactory **factories, size_t most, size_t *count) {
  static OrtEpFactory factory = {
    .ort_version_supported = ORT_VERSION, .GetName = factory_name, .GetVendor = vendor, .GetSupportedDevices = supported_devices,
    .CreateEp = create_provider, .ReleaseEp = release_provider, .GetVendorId = vendor_id, .GetVersion = version,
    .CreateAllocator = create_allocator, .ReleaseAllocator = release_allocator, .CreateDataTransfer = create_data_transfer,
    .IsStreamAware = is_stream_aware, .CreateSyncStreamForDevice = create_stream,
  };
  const char *text = base->GetVersionString();
  (void)name, (void)logger;
  *count = 0;
  ort = base->GetApi(ORT_VERSION);
  if (!ort) { /* there is no table with which to say so */
    fprintf(stderr, "%s needs ONNX Runtime 1.%d or later, found %s\n", PROVIDER, ORT_VERSION, text);
    return NULL;
  }
  ort_minor_version = strchr(text, '.') ? atoi(strchr(text, '.') + 1) : ORT_VERSION;
  if (most < 1) return failed("there is no room for a factory");
  factories[0] = &factory;
  *count = 1;
  return NULL;
}

__attribute__((visibility("default"))) OrtStatus *ReleaseEpFactory(OrtEpFactory *factory) {
  (void)factory;
  return NULL;
}
