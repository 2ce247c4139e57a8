/* Writes graphs of ONNX Runtime as ONNX models: protocol buffers by hand, weights in a file beside them. */
#define _POSIX_C_SOURCE 200809L
#include "provider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  uint8_t *data;
  size_t size, capacity;
} Buffer;

typedef struct {
  FILE *weights;
  uint64_t offset; /* where the next weights begin */
} Writer;

enum { INLINE_BYTES = 1024, ALIGNMENT = 64 }; /* larger tensors are in the file of weights, at multiples of this */

static void *grown(void *memory, size_t size) {
  void *result = realloc(memory, size ? size : 1);
  if (!result) abort(); /* ONNX Runtime does so too */
  return result;
}

static void put(Buffer *buffer, const void *data, size_t size) {
  if (buffer->size + size > buffer->capacity) {
    buffer->capacity = 2 * (buffer->size + size) + 64;
    buffer->data = grown(buffer->data, buffer->capacity);
  }
  if (size) memcpy(buffer->data + buffer->size, data, size);
  buffer->size += size;
}

static void put_varint(Buffer *buffer, uint64_t value) {
  uint8_t bytes[10];
  size_t count = 0;
  do {
    bytes[count] = (uint8_t)(value & 127) | (value > 127 ? 128 : 0);
    value >>= 7;
    count++;
  } while (value);
  put(buffer, bytes, count);
}

static void put_integer(Buffer *buffer, int field, int64_t value) {
  put_varint(buffer, (uint64_t)field << 3);
  put_varint(buffer, (uint64_t)value);
}

static void put_float(Buffer *buffer, int field, float value) {
  put_varint(buffer, (uint64_t)field << 3 | 5);
  put(buffer, &value, sizeof value);
}

static void put_bytes(Buffer *buffer, int field, const void *data, size_t size) {
  put_varint(buffer, (uint64_t)field << 3 | 2);
  put_varint(buffer, size);
  put(buffer, data, size);
}

static void put_text(Buffer *buffer, int field, const char *text) { put_bytes(buffer, field, text, strlen(text)); }

/* Append a message to another one, and leave it empty. */
static void put_message(Buffer *buffer, int field, Buffer *message) {
  put_bytes(buffer, field, message->data, message->size);
  message->size = 0;
}

static bool has_shape(const OrtTensorTypeAndShapeInfo *info, size_t rank) {
  return ort_minor_version >= 24 ? ORT(TensorTypeAndShape_HasShape)(info) : rank > 0;
}

static OrtStatus *put_value(Buffer *graph, int field, const OrtValueInfo *value) {
  Buffer message = {0}, type = {0}, tensor = {0}, shape = {0}, dim = {0};
  const OrtTypeInfo *info;
  const OrtTensorTypeAndShapeInfo *sizes = NULL;
  const char *name, **symbols = NULL;
  int64_t *dims = NULL;
  size_t rank = 0, i;
  int kind, element;
  OrtStatus *status;
  TRY(ORT(GetValueInfoName)(value, &name));
  put_text(&message, 1, name);
  TRY(ORT(GetValueInfoTypeInfo)(value, &info));
  if (info) TRY(ORT(GetOnnxTypeFromTypeInfo)(info, &kind));
  if (info && kind == ORT_TENSOR) {
    TRY(ORT(CastTypeInfoToTensorInfo)(info, &sizes));
    TRY(ORT(GetTensorElementType)(sizes, &element));
    TRY(ORT(GetDimensionsCount)(sizes, &rank));
    put_integer(&tensor, 1, element);
    dims = grown(NULL, rank * sizeof *dims);
    symbols = grown(NULL, rank * sizeof *symbols);
    TRY(ORT(GetDimensions)(sizes, dims, rank));
    TRY(ORT(GetSymbolicDimensions)(sizes, symbols, rank));
    for (i = 0; i < rank; ++i) {
      if (dims[i] >= 0) put_integer(&dim, 1, dims[i]);
      else if (symbols[i] && *symbols[i]) put_text(&dim, 2, symbols[i]);
      put_message(&shape, 1, &dim);
    }
    if (has_shape(sizes, rank)) put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_message(&message, 2, &type);
  }
  put_message(graph, field, &message);
end:
  free(message.data), free(type.data), free(tensor.data), free(shape.data), free(dim.data), free(dims), free(symbols);
  return status;
}

static OrtStatus *put_strings(Buffer *message, const OrtValue *value, size_t count) {
  size_t bytes, i, *offsets = grown(NULL, (count + 1) * sizeof *offsets);
  char *text = NULL;
  OrtStatus *status;
  TRY(ORT(GetStringTensorDataLength)(value, &bytes));
  text = grown(NULL, bytes);
  TRY(ORT(GetStringTensorContent)(value, text, bytes, offsets, count));
  offsets[count] = bytes;
  for (i = 0; i < count; ++i) put_bytes(message, 6, text + offsets[i], offsets[i + 1] - offsets[i]);
end:
  free(text), free(offsets);
  return status;
}

static void put_entry(Buffer *message, const char *key, uint64_t value) {
  char text[32];
  Buffer entry = {0};
  snprintf(text, sizeof text, "%llu", (unsigned long long)value);
  put_text(&entry, 1, key);
  put_text(&entry, 2, text);
  put_message(message, 13, &entry);
  free(entry.data);
}

static OrtStatus *put_tensor(Writer *writer, Buffer *message, const char *name, const OrtValue *value) {
  static const char zeros[ALIGNMENT];
  OrtTensorTypeAndShapeInfo *info = NULL;
  Buffer entry = {0};
  size_t rank, count, bytes, i;
  int64_t *dims = NULL;
  const void *data;
  int element;
  OrtStatus *status;
  TRY(ORT(GetTensorTypeAndShape)(value, &info));
  TRY(ORT(GetTensorElementType)(info, &element));
  TRY(ORT(GetDimensionsCount)(info, &rank));
  TRY(ORT(GetTensorShapeElementCount)(info, &count));
  dims = grown(NULL, rank * sizeof *dims);
  TRY(ORT(GetDimensions)(info, dims, rank));
  for (i = 0; i < rank; ++i) put_integer(message, 1, dims[i]);
  put_integer(message, 2, element);
  put_text(message, 8, name);
  if (element == 8) {
    TRY(put_strings(message, value, count));
    goto end;
  }
  TRY(ORT(GetTensorSizeInBytes)(value, &bytes));
  TRY(ORT(GetTensorData)(value, &data));
  if (bytes <= INLINE_BYTES) {
    put_bytes(message, 9, data, bytes);
    goto end;
  }
  if (fwrite(data, 1, bytes, writer->weights) != bytes) {
    status = failed("cannot write %zu bytes of weights: is the disk full?", bytes);
    goto end;
  }
  put_text(&entry, 1, "location");
  put_text(&entry, 2, "weights.bin");
  put_message(message, 13, &entry);
  put_entry(message, "offset", writer->offset);
  put_entry(message, "length", bytes);
  put_integer(message, 14, 1);
  count = (ALIGNMENT - bytes % ALIGNMENT) % ALIGNMENT;
  fwrite(zeros, 1, count, writer->weights);
  writer->offset += bytes + count;
end:
  free(entry.data), free(dims);
  if (info) ORT(ReleaseTensorTypeAndShapeInfo)(info);
  return status;
}

static OrtStatus *put_attribute(Writer *writer, Buffer *node, const OrtOpAttr *attribute) {
  static const struct {
    int field, type;
    size_t bytes;
  } kinds[] = {{0, 0, 0}, {3, 2, 8}, {8, 7, 8}, {2, 1, 4}, {7, 6, 4}, {4, 3, 1}, {9, 8, 1}};
  Buffer message = {0}, tensor = {0};
  const char *name;
  char *data = NULL;
  size_t bytes = 0, i;
  int kind;
  OrtValue *value = NULL;
  OrtStatus *status;
  TRY(ORT(OpAttr_GetType)(attribute, &kind));
  if (kind == ORT_ATTR_GRAPH) goto end;
  TRY(ORT(OpAttr_GetName)(attribute, &name));
  put_text(&message, 1, name);
  if (kind == ORT_ATTR_TENSOR) {
    TRY(ORT(OpAttr_GetTensorAttributeAsOrtValue)(attribute, &value));
    TRY(put_tensor(writer, &tensor, "", value));
    put_message(&message, 5, &tensor);
    put_integer(&message, 20, 4);
  } else if (kind >= ORT_ATTR_INT && kind <= ORT_ATTR_STRINGS) {
    /* The first call says how many bytes there are, and is an error if there are any. */
    status = ORT(ReadOpAttr)(attribute, kind, NULL, 0, &bytes);
    if (status) ORT(ReleaseStatus)(status);
    data = grown(NULL, bytes + 1);
    if (bytes) TRY(ORT(ReadOpAttr)(attribute, kind, data, bytes, &bytes));
    status = NULL;
    data[bytes] = 0;
    if (kind == ORT_ATTR_STRING) put_bytes(&message, 4, data, bytes);
    else if (kind == ORT_ATTR_STRINGS) for (i = 0; i < bytes; i += strlen(data + i) + 1) put_text(&message, 9, data + i);
    else for (i = 0; i + kinds[kind].bytes <= bytes; i += kinds[kind].bytes) {
      if (kinds[kind].bytes == 4) {
        float real;
        memcpy(&real, data + i, sizeof real);
        put_float(&message, kinds[kind].field, real);
      } else {
        int64_t integer;
        memcpy(&integer, data + i, sizeof integer);
        put_integer(&message, kinds[kind].field, integer);
      }
    }
    put_integer(&message, 20, kinds[kind].type);
  }
  put_message(node, 5, &message);
end:
  if (value) ORT(ReleaseValue)(value);
  free(message.data), free(tensor.data), free(data);
  return status;
}

static OrtStatus *put_graph(Writer *writer, Buffer *message, const OrtGraph *graph);

static OrtStatus *put_subgraphs(Writer *writer, Buffer *message, const OrtNode *node) {
  Buffer attribute = {0}, graph = {0};
  const OrtGraph **graphs = NULL;
  const char **names = NULL;
  size_t count, i;
  OrtStatus *status;
  TRY(ORT(Node_GetNumSubgraphs)(node, &count));
  graphs = grown(NULL, count * sizeof *graphs);
  names = grown(NULL, count * sizeof *names);
  if (count) TRY(ORT(Node_GetSubgraphs)(node, graphs, count, names));
  for (i = 0; i < count; ++i) {
    put_text(&attribute, 1, names[i]);
    TRY(put_graph(writer, &graph, graphs[i]));
    put_message(&attribute, 6, &graph);
    put_integer(&attribute, 20, 5);
    put_message(message, 5, &attribute);
  }
end:
  free(attribute.data), free(graph.data), free(graphs), free(names);
  return status;
}

static OrtStatus *put_names(Buffer *message, int field, const OrtValueInfo **values, size_t count) {
  OrtStatus *status = NULL;
  const char *name;
  size_t i;
  for (i = 0; i < count; ++i) {
    name = "";
    if (values[i]) TRY(ORT(GetValueInfoName)(values[i], &name));
    put_text(message, field, name);
  }
end:
  return status;
}

static OrtStatus *put_node(Writer *writer, Buffer *graph, const OrtNode *node) {
  Buffer message = {0};
  const OrtValueInfo **values = NULL;
  const OrtOpAttr **attributes = NULL;
  const char *text;
  size_t inputs, outputs, count, i;
  OrtStatus *status;
  TRY(ORT(Node_GetNumInputs)(node, &inputs));
  TRY(ORT(Node_GetNumOutputs)(node, &outputs));
  TRY(ORT(Node_GetNumAttributes)(node, &count));
  values = grown(NULL, (inputs > outputs ? inputs : outputs) * sizeof *values);
  attributes = grown(NULL, count * sizeof *attributes);
  TRY(ORT(Node_GetInputs)(node, values, inputs));
  TRY(put_names(&message, 1, values, inputs));
  TRY(ORT(Node_GetOutputs)(node, values, outputs));
  TRY(put_names(&message, 2, values, outputs));
  TRY(ORT(Node_GetName)(node, &text));
  put_text(&message, 3, text);
  TRY(ORT(Node_GetOperatorType)(node, &text));
  put_text(&message, 4, text);
  TRY(ORT(Node_GetDomain)(node, &text));
  put_text(&message, 7, text);
  if (count) TRY(ORT(Node_GetAttributes)(node, attributes, count));
  for (i = 0; i < count; ++i) TRY(put_attribute(writer, &message, attributes[i]));
  TRY(put_subgraphs(writer, &message, node));
  put_message(graph, 1, &message);
  for (i = 0; i < outputs; ++i)
    if (values[i]) TRY(put_value(graph, 13, values[i]));
end:
  free(message.data), free(values), free(attributes);
  return status;
}

typedef struct {
  const char *name;
  const OrtValueInfo *value;
} Named;

static int compare_names(const void *left, const void *right) {
  return strcmp(((const Named *)left)->name, ((const Named *)right)->name);
}

/* Initializers come in another order each time: by their names, equal graphs are equal files, which a cache knows. */
static OrtStatus *put_initializers(Writer *writer, Buffer *message, const OrtValueInfo **values, size_t count) {
  Buffer tensor = {0};
  Named *named = grown(NULL, count * sizeof *named);
  const OrtValue *value;
  OrtStatus *status = NULL;
  size_t i;
  for (i = 0; i < count; ++i) {
    named[i].value = values[i];
    TRY(ORT(GetValueInfoName)(values[i], &named[i].name));
  }
  qsort(named, count, sizeof *named, compare_names);
  for (i = 0; i < count; ++i) {
    TRY(ORT(ValueInfo_GetInitializerValue)(named[i].value, &value));
    if (!value) continue; /* of a graph outside */
    TRY(put_tensor(writer, &tensor, named[i].name, value));
    put_message(message, 5, &tensor);
  }
end:
  free(tensor.data), free(named);
  return status;
}

static OrtStatus *put_graph(Writer *writer, Buffer *message, const OrtGraph *graph) {
  const OrtValueInfo **values = NULL;
  const OrtNode **nodes = NULL;
  size_t inputs, outputs, initializers, count, most, i;
  OrtStatus *status;
  TRY(ORT(Graph_GetNumInputs)(graph, &inputs));
  TRY(ORT(Graph_GetNumOutputs)(graph, &outputs));
  TRY(ORT(Graph_GetNumInitializers)(graph, &initializers));
  TRY(ORT(Graph_GetNumNodes)(graph, &count));
  most = inputs > outputs ? inputs : outputs;
  values = grown(NULL, (most > initializers ? most : initializers) * sizeof *values);
  nodes = grown(NULL, count * sizeof *nodes);
  if (count) TRY(ORT(Graph_GetNodes)(graph, nodes, count));
  for (i = 0; i < count; ++i) TRY(put_node(writer, message, nodes[i]));
  put_text(message, 2, "graph");
  if (initializers) TRY(ORT(Graph_GetInitializers)(graph, values, initializers));
  TRY(put_initializers(writer, message, values, initializers));
  if (inputs) TRY(ORT(Graph_GetInputs)(graph, values, inputs));
  for (i = 0; i < inputs; ++i) TRY(put_value(message, 11, values[i]));
  if (outputs) TRY(ORT(Graph_GetOutputs)(graph, values, outputs));
  for (i = 0; i < outputs; ++i) TRY(put_value(message, 12, values[i]));
end:
  free(values), free(nodes);
  return status;
}

static FILE *opened(const char *folder, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return fopen(path, "wb");
}

OrtStatus *write_model(const OrtGraph *graph, const char *folder) {
  Writer writer = {opened(folder, "weights.bin"), 0};
  FILE *file = opened(folder, "model.onnx");
  Buffer model = {0}, message = {0};
  const char **domains = NULL;
  int64_t *versions = NULL;
  size_t count, i;
  OrtStatus *status;
  if (!file || !writer.weights) {
    status = failed("cannot write to '%s'", folder);
    goto end;
  }
  put_integer(&model, 1, 10);
  TRY(ORT(Graph_GetNumOperatorSets)(graph, &count));
  domains = grown(NULL, count * sizeof *domains);
  versions = grown(NULL, count * sizeof *versions);
  if (count) TRY(ORT(Graph_GetOperatorSets)(graph, domains, versions, count));
  for (i = 0; i < count; ++i) {
    put_text(&message, 1, domains[i]);
    put_integer(&message, 2, versions[i]);
    put_message(&model, 8, &message);
  }
  TRY(put_graph(&writer, &message, graph));
  put_message(&model, 7, &message);
  if (fwrite(model.data, 1, model.size, file) != model.size || fflush(file) || fflush(writer.weights))
    status = failed("cannot write the model to '%s': is the disk full?", folder);
end:
  if (file) fclose(file);
  if (writer.weights) fclose(writer.weights);
  free(model.data), free(message.data), free(domains), free(versions);
  return status;
}
