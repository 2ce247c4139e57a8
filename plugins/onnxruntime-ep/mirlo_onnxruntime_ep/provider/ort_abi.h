/* The binary interface of ONNX Runtime that a plug-in execution provider uses, as of its version 1.23.
 *
 * ONNX Runtime hands out tables of functions whose order never changes: a position in a table is all that a caller needs.
 * `CALL_*` read a function from a table. Structures that a provider fills in have the layout of the version that it names. */
#ifndef MIRLO_ORT_ABI_H
#define MIRLO_ORT_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORT_VERSION 23

typedef struct OrtStatus OrtStatus;
typedef struct OrtApi OrtApi;
typedef struct OrtEpApi OrtEpApi;
typedef struct OrtModelEditorApi OrtModelEditorApi;
typedef struct OrtValue OrtValue;
typedef struct OrtTypeInfo OrtTypeInfo;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtOpAttr OrtOpAttr;
typedef struct OrtLogger OrtLogger;
typedef struct OrtValueInfo OrtValueInfo;
typedef struct OrtKeyValuePairs OrtKeyValuePairs;
typedef struct OrtHardwareDevice OrtHardwareDevice;
typedef struct OrtEpDevice OrtEpDevice;
typedef struct OrtGraph OrtGraph;
typedef struct OrtNode OrtNode;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtEpGraphSupportInfo OrtEpGraphSupportInfo;
typedef struct OrtNodeComputeContext OrtNodeComputeContext;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtMemoryDevice OrtMemoryDevice;
typedef struct OrtAllocator OrtAllocator;
typedef struct OrtSyncStreamImpl OrtSyncStreamImpl;
typedef struct OrtDataTransferImpl OrtDataTransferImpl;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct {
  const OrtApi *(*GetApi)(uint32_t version);
  const char *(*GetVersionString)(void);
} OrtApiBase;

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_NOT_IMPLEMENTED = 9, ORT_EP_FAIL = 11 };
enum { ORT_VERBOSE, ORT_INFO, ORT_WARNING, ORT_ERROR };
enum { ORT_CPU_DEVICE = 0 };
enum { ORT_TENSOR = 1 }; /* what a value is: a sequence, a map or an optional value otherwise */
enum { ORT_ATTR_INT = 1, ORT_ATTR_INTS, ORT_ATTR_FLOAT, ORT_ATTR_FLOATS, ORT_ATTR_STRING, ORT_ATTR_STRINGS, ORT_ATTR_GRAPH, ORT_ATTR_TENSOR };

/* A function of a table, by its position. */
#define ORT_FUNCTION(table, position, result, ...) ((result(*)(__VA_ARGS__))((void *const *)(table))[position])

/* A function by its name; `ort` is the table of the program's ONNX Runtime. */
#define ORT(name) name##_(ort)

#define CreateStatus_(api) ORT_FUNCTION(api, 0, OrtStatus *, int, const char *)
#define GetErrorMessage_(api) ORT_FUNCTION(api, 2, const char *, const OrtStatus *)
#define GetTensorMutableData_(api) ORT_FUNCTION(api, 51, OrtStatus *, OrtValue *, void **)
#define CastTypeInfoToTensorInfo_(api) ORT_FUNCTION(api, 55, OrtStatus *, const OrtTypeInfo *, const OrtTensorTypeAndShapeInfo **)
#define GetOnnxTypeFromTypeInfo_(api) ORT_FUNCTION(api, 56, OrtStatus *, const OrtTypeInfo *, int *)
#define GetTensorElementType_(api) ORT_FUNCTION(api, 60, OrtStatus *, const OrtTensorTypeAndShapeInfo *, int *)
#define GetDimensionsCount_(api) ORT_FUNCTION(api, 61, OrtStatus *, const OrtTensorTypeAndShapeInfo *, size_t *)
#define GetDimensions_(api) ORT_FUNCTION(api, 62, OrtStatus *, const OrtTensorTypeAndShapeInfo *, int64_t *, size_t)
#define GetSymbolicDimensions_(api) ORT_FUNCTION(api, 63, OrtStatus *, const OrtTensorTypeAndShapeInfo *, const char **, size_t)
#define GetStringTensorDataLength_(api) ORT_FUNCTION(api, 53, OrtStatus *, const OrtValue *, size_t *)
#define GetStringTensorContent_(api) ORT_FUNCTION(api, 54, OrtStatus *, const OrtValue *, void *, size_t, size_t *, size_t)
#define GetTensorShapeElementCount_(api) ORT_FUNCTION(api, 64, OrtStatus *, const OrtTensorTypeAndShapeInfo *, size_t *)
#define GetTensorTypeAndShape_(api) ORT_FUNCTION(api, 65, OrtStatus *, const OrtValue *, OrtTensorTypeAndShapeInfo **)
#define KernelContext_GetInput_(api) ORT_FUNCTION(api, 90, OrtStatus *, const OrtKernelContext *, size_t, const OrtValue **)
#define KernelContext_GetOutput_(api) ORT_FUNCTION(api, 91, OrtStatus *, OrtKernelContext *, size_t, const int64_t *, size_t, OrtValue **)
#define ReleaseStatus_(api) ORT_FUNCTION(api, 93, void, OrtStatus *)
#define ReleaseValue_(api) ORT_FUNCTION(api, 96, void, OrtValue *)
#define ReleaseTensorTypeAndShapeInfo_(api) ORT_FUNCTION(api, 99, void, OrtTensorTypeAndShapeInfo *)
#define CreateOpAttr_(api) ORT_FUNCTION(api, 211, OrtStatus *, const char *, const void *, int, int, OrtOpAttr **)
#define Logger_LogMessage_(api) ORT_FUNCTION(api, 247, OrtStatus *, const OrtLogger *, int, const char *, const char *, int, const char *)
#define ReadOpAttr_(api) ORT_FUNCTION(api, 272, OrtStatus *, const OrtOpAttr *, int, void *, size_t, size_t *)
#define KernelContext_ParallelFor_(api) ORT_FUNCTION(api, 274, OrtStatus *, const OrtKernelContext *, void (*)(void *, size_t), size_t, size_t, void *)
#define GetValueInfoName_(api) ORT_FUNCTION(api, 289, OrtStatus *, const OrtValueInfo *, const char **)
#define GetValueInfoTypeInfo_(api) ORT_FUNCTION(api, 290, OrtStatus *, const OrtValueInfo *, const OrtTypeInfo **)
#define GetModelEditorApi_(api) ORT_FUNCTION(api, 291, const OrtModelEditorApi *, void)
#define GetKeyValuePairs_(api) ORT_FUNCTION(api, 298, void, const OrtKeyValuePairs *, const char *const **, const char *const **, size_t *)
#define ReleaseKeyValuePairs_(api) ORT_FUNCTION(api, 300, void, OrtKeyValuePairs *)
#define HardwareDevice_Type_(api) ORT_FUNCTION(api, 307, int, const OrtHardwareDevice *)
#define GetEpApi_(api) ORT_FUNCTION(api, 317, const OrtEpApi *, void)
#define GetTensorSizeInBytes_(api) ORT_FUNCTION(api, 318, OrtStatus *, const OrtValue *, size_t *)
#define ValueInfo_GetInitializerValue_(api) ORT_FUNCTION(api, 326, OrtStatus *, const OrtValueInfo *, const OrtValue **)
#define ValueInfo_IsConstantInitializer_(api) ORT_FUNCTION(api, 331, OrtStatus *, const OrtValueInfo *, bool *)
#define Graph_GetModelPath_(api) ORT_FUNCTION(api, 334, OrtStatus *, const OrtGraph *, const char **)
#define Graph_GetNumOperatorSets_(api) ORT_FUNCTION(api, 336, OrtStatus *, const OrtGraph *, size_t *)
#define Graph_GetOperatorSets_(api) ORT_FUNCTION(api, 337, OrtStatus *, const OrtGraph *, const char **, int64_t *, size_t)
#define Graph_GetNumInputs_(api) ORT_FUNCTION(api, 338, OrtStatus *, const OrtGraph *, size_t *)
#define Graph_GetInputs_(api) ORT_FUNCTION(api, 339, OrtStatus *, const OrtGraph *, const OrtValueInfo **, size_t)
#define Graph_GetNumOutputs_(api) ORT_FUNCTION(api, 340, OrtStatus *, const OrtGraph *, size_t *)
#define Graph_GetOutputs_(api) ORT_FUNCTION(api, 341, OrtStatus *, const OrtGraph *, const OrtValueInfo **, size_t)
#define Graph_GetNumInitializers_(api) ORT_FUNCTION(api, 342, OrtStatus *, const OrtGraph *, size_t *)
#define Graph_GetInitializers_(api) ORT_FUNCTION(api, 343, OrtStatus *, const OrtGraph *, const OrtValueInfo **, size_t)
#define Graph_GetNumNodes_(api) ORT_FUNCTION(api, 344, OrtStatus *, const OrtGraph *, size_t *)
#define Graph_GetNodes_(api) ORT_FUNCTION(api, 345, OrtStatus *, const OrtGraph *, const OrtNode **, size_t)
#define Graph_GetParentNode_(api) ORT_FUNCTION(api, 346, OrtStatus *, const OrtGraph *, const OrtNode **)
#define Node_GetName_(api) ORT_FUNCTION(api, 349, OrtStatus *, const OrtNode *, const char **)
#define Node_GetOperatorType_(api) ORT_FUNCTION(api, 350, OrtStatus *, const OrtNode *, const char **)
#define Node_GetDomain_(api) ORT_FUNCTION(api, 351, OrtStatus *, const OrtNode *, const char **)
#define Node_GetNumInputs_(api) ORT_FUNCTION(api, 353, OrtStatus *, const OrtNode *, size_t *)
#define Node_GetInputs_(api) ORT_FUNCTION(api, 354, OrtStatus *, const OrtNode *, const OrtValueInfo **, size_t)
#define Node_GetNumOutputs_(api) ORT_FUNCTION(api, 355, OrtStatus *, const OrtNode *, size_t *)
#define Node_GetOutputs_(api) ORT_FUNCTION(api, 356, OrtStatus *, const OrtNode *, const OrtValueInfo **, size_t)
#define Node_GetNumAttributes_(api) ORT_FUNCTION(api, 359, OrtStatus *, const OrtNode *, size_t *)
#define Node_GetAttributes_(api) ORT_FUNCTION(api, 360, OrtStatus *, const OrtNode *, const OrtOpAttr **, size_t)
#define OpAttr_GetTensorAttributeAsOrtValue_(api) ORT_FUNCTION(api, 362, OrtStatus *, const OrtOpAttr *, OrtValue **)
#define OpAttr_GetType_(api) ORT_FUNCTION(api, 363, OrtStatus *, const OrtOpAttr *, int *)
#define OpAttr_GetName_(api) ORT_FUNCTION(api, 364, OrtStatus *, const OrtOpAttr *, const char **)
#define Node_GetNumSubgraphs_(api) ORT_FUNCTION(api, 365, OrtStatus *, const OrtNode *, size_t *)
#define Node_GetSubgraphs_(api) ORT_FUNCTION(api, 366, OrtStatus *, const OrtNode *, const OrtGraph **, size_t, const char **)
#define GetTensorData_(api) ORT_FUNCTION(api, 378, OrtStatus *, const OrtValue *, const void **)
#define GetSessionOptionsConfigEntries_(api) ORT_FUNCTION(api, 379, OrtStatus *, const OrtSessionOptions *, OrtKeyValuePairs **)
/* Since version 1.24. */
#define TensorTypeAndShape_HasShape_(api) ORT_FUNCTION(api, 390, bool, const OrtTensorTypeAndShapeInfo *)

/* Of OrtEpApi. */
#define CreateEpDevice_(api) ORT_FUNCTION(api, 0, OrtStatus *, struct OrtEpFactory *, const OrtHardwareDevice *, const OrtKeyValuePairs *, const OrtKeyValuePairs *, OrtEpDevice **)
#define AddNodesToFuse_(api) ORT_FUNCTION(api, 2, OrtStatus *, OrtEpGraphSupportInfo *, const OrtNode *const *, size_t, const OrtNodeFusionOptions *)

/* Of OrtModelEditorApi. */
#define CreateNode_(api) ORT_FUNCTION(api, 6, OrtStatus *, const char *, const char *, const char *, const char *const *, size_t, const char *const *, size_t, OrtOpAttr **, size_t, OrtNode **)

typedef struct {
  uint32_t ort_version_supported;
  bool drop_constant_initializers;
} OrtNodeFusionOptions;

typedef struct OrtNodeComputeInfo {
  uint32_t ort_version_supported;
  OrtStatus *(*CreateState)(struct OrtNodeComputeInfo *, OrtNodeComputeContext *, void **);
  OrtStatus *(*Compute)(struct OrtNodeComputeInfo *, void *, OrtKernelContext *);
  void (*ReleaseState)(struct OrtNodeComputeInfo *, void *);
} OrtNodeComputeInfo;

typedef struct OrtEp {
  uint32_t ort_version_supported;
  const char *(*GetName)(const struct OrtEp *);
  OrtStatus *(*GetCapability)(struct OrtEp *, const OrtGraph *, OrtEpGraphSupportInfo *);
  OrtStatus *(*Compile)(struct OrtEp *, const OrtGraph **, const OrtNode **, size_t, OrtNodeComputeInfo **, OrtNode **);
  void (*ReleaseNodeComputeInfos)(struct OrtEp *, OrtNodeComputeInfo **, size_t);
  OrtStatus *(*GetPreferredDataLayout)(struct OrtEp *, int *);
  OrtStatus *(*ShouldConvertDataLayoutForOp)(struct OrtEp *, const char *, const char *, int, int *);
  OrtStatus *(*SetDynamicOptions)(struct OrtEp *, const char *const *, const char *const *, size_t);
  OrtStatus *(*OnRunStart)(struct OrtEp *, const OrtRunOptions *);
  OrtStatus *(*OnRunEnd)(struct OrtEp *, const OrtRunOptions *, bool);
  OrtStatus *(*CreateAllocator)(struct OrtEp *, const OrtMemoryInfo *, OrtAllocator **);
  OrtStatus *(*CreateSyncStreamForDevice)(struct OrtEp *, const OrtMemoryDevice *, OrtSyncStreamImpl **);
  const char *(*GetCompiledModelCompatibilityInfo)(struct OrtEp *, const OrtGraph *);
} OrtEp;

typedef struct OrtEpFactory {
  uint32_t ort_version_supported;
  const char *(*GetName)(const struct OrtEpFactory *);
  const char *(*GetVendor)(const struct OrtEpFactory *);
  OrtStatus *(*GetSupportedDevices)(struct OrtEpFactory *, const OrtHardwareDevice *const *, size_t, OrtEpDevice **, size_t, size_t *);
  OrtStatus *(*CreateEp)(struct OrtEpFactory *, const OrtHardwareDevice *const *, const OrtKeyValuePairs *const *, size_t,
                         const OrtSessionOptions *, const OrtLogger *, OrtEp **);
  void (*ReleaseEp)(struct OrtEpFactory *, OrtEp *);
  uint32_t (*GetVendorId)(const struct OrtEpFactory *);
  const char *(*GetVersion)(const struct OrtEpFactory *);
  OrtStatus *(*ValidateCompiledModelCompatibilityInfo)(struct OrtEpFactory *, const OrtHardwareDevice *const *, size_t, const char *, int *);
  OrtStatus *(*CreateAllocator)(struct OrtEpFactory *, const OrtMemoryInfo *, const OrtKeyValuePairs *, OrtAllocator **);
  void (*ReleaseAllocator)(struct OrtEpFactory *, OrtAllocator *);
  OrtStatus *(*CreateDataTransfer)(struct OrtEpFactory *, OrtDataTransferImpl **);
  bool (*IsStreamAware)(const struct OrtEpFactory *);
  OrtStatus *(*CreateSyncStreamForDevice)(struct OrtEpFactory *, const OrtMemoryDevice *, const OrtKeyValuePairs *, OrtSyncStreamImpl **);
} OrtEpFactory;

#endif
