/* A program without Python: it registers the provider, opens a model with it, and prints the results of one call. */
#include "ort_abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct OrtEnv OrtEnv;
typedef struct OrtSession OrtSession;

const OrtApiBase *OrtGetApiBase(void);
static const OrtApi *ort;

#define CreateEnv_(api) ORT_FUNCTION(api, 3, OrtStatus *, int, const char *, OrtEnv **)
#define CreateSession_(api) ORT_FUNCTION(api, 7, OrtStatus *, const OrtEnv *, const char *, const OrtSessionOptions *, OrtSession **)
#define Run_(api) ORT_FUNCTION(api, 9, OrtStatus *, OrtSession *, const OrtRunOptions *, const char *const *, const OrtValue *const *, size_t, const char *const *, size_t, OrtValue **)
#define CreateSessionOptions_(api) ORT_FUNCTION(api, 10, OrtStatus *, OrtSessionOptions **)
#define CreateTensorWithDataAsOrtValue_(api) ORT_FUNCTION(api, 49, OrtStatus *, const OrtMemoryInfo *, void *, size_t, const int64_t *, size_t, int, OrtValue **)
#define CreateCpuMemoryInfo_(api) ORT_FUNCTION(api, 69, OrtStatus *, int, int, OrtMemoryInfo **)
#define ReleaseSession_(api) ORT_FUNCTION(api, 95, void, OrtSession *)
#define RegisterExecutionProviderLibrary_(api) ORT_FUNCTION(api, 301, OrtStatus *, OrtEnv *, const char *, const char *)
#define GetEpDevices_(api) ORT_FUNCTION(api, 303, OrtStatus *, const OrtEnv *, const OrtEpDevice *const **, size_t *)
#define AppendExecutionProvider_V2_(api) ORT_FUNCTION(api, 304, OrtStatus *, OrtSessionOptions *, OrtEnv *, const OrtEpDevice *const *, size_t, const char *const *, const char *const *, size_t)
#define EpDevice_EpName_(api) ORT_FUNCTION(api, 312, const char *, const OrtEpDevice *)

static void check(OrtStatus *status) {
  if (!status) return;
  fprintf(stderr, "%s\n", ORT(GetErrorMessage)(status));
  exit(1);
}

int main(int count, char **words) {
  static float x[2 * 8];
  const int64_t dims[] = {2, 8};
  const char *inputs[] = {"x"}, *outputs[] = {"y"}, *keys[] = {"trust"}, *values[] = {"1"};
  const OrtEpDevice *const *devices, *chosen = NULL;
  OrtEnv *env;
  OrtSessionOptions *options;
  OrtSession *session;
  OrtMemoryInfo *memory;
  OrtValue *input, *output = NULL;
  float *y;
  size_t found, i;
  if (count != 3) return 2;
  ort = OrtGetApiBase()->GetApi(ORT_VERSION);
  check(ORT(CreateEnv)(ORT_ERROR, "program", &env));
  check(ORT(RegisterExecutionProviderLibrary)(env, "mirlo", words[1]));
  check(ORT(GetEpDevices)(env, &devices, &found));
  for (i = 0; i < found; ++i)
    if (!strcmp(ORT(EpDevice_EpName)(devices[i]), "MirloExecutionProvider")) chosen = devices[i];
  if (!chosen) return 3;
  check(ORT(CreateSessionOptions)(&options));
  check(ORT(AppendExecutionProvider_V2)(options, env, &chosen, 1, keys, values, 1));
  check(ORT(CreateSession)(env, words[2], options, &session));
  for (i = 0; i < 2 * 8; ++i) x[i] = (float)i / 16;
  check(ORT(CreateCpuMemoryInfo)(0, 0, &memory));
  check(ORT(CreateTensorWithDataAsOrtValue)(memory, x, sizeof x, dims, 2, 1, &input));
  check(ORT(Run)(session, NULL, inputs, (const OrtValue *const *)&input, 1, outputs, 1, &output));
  check(ORT(GetTensorMutableData)(output, (void **)&y));
  for (i = 0; i < 2 * 5; ++i) printf("%.9g\n", y[i]);
  ORT(ReleaseSession)(session);
  return 0;
}
