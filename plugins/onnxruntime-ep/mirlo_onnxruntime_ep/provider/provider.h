/* What the files of the provider share. */
#ifndef MIRLO_PROVIDER_H
#define MIRLO_PROVIDER_H

#include "ort_abi.h"

#define PROVIDER "MirloExecutionProvider"

extern const OrtApi *ort;
extern int ort_minor_version;

/* Continue only if a call of ONNX Runtime succeeded; what a function acquired, it releases at `end`. */
#define TRY(call)          \
  do {                     \
    status = (call);       \
    if (status) goto end;  \
  } while (0)

/* Return a status with a message as printf makes it. */
OrtStatus *failed(const char *format, ...);

/* Write a graph as an ONNX model, FOLDER/model.onnx with FOLDER/weights.bin. */
OrtStatus *write_model(const OrtGraph *graph, const char *folder);

/* Ask the compiler, a process of Python, which is started for the first request; `handle` gets each line of its answer. */
OrtStatus *ask_compiler(const char *python, const char *request, OrtStatus *(*handle)(void *, const char *), void *user);

#endif
