/* What cuDNN wants of a driver before it says which engines compute a graph: names, and that there is no GPU. */
int cuGetErrorString(int error, const char **text) { return *text = "no GPU", 0; }
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }

#define NONE(name) int name(void) { return 100; }
NONE(cuCtxGetCurrent) NONE(cuCtxGetLimit) NONE(cuCtxPopCurrent) NONE(cuCtxPushCurrent) NONE(cuDeviceGet)
NONE(cuDeviceGetCount) NONE(cuGetErrorName) NONE(cuKernelGetAttribute) NONE(cuKernelGetFunction)
NONE(cuKernelSetAttribute) NONE(cuLaunchCooperativeKernel) NONE(cuLaunchKernel) NONE(cuLaunchKernelEx)
NONE(cuLibraryGetKernel) NONE(cuLibraryLoadData) NONE(cuLibraryLoadFromFile) NONE(cuLibraryUnload)
NONE(cuLinkAddData) NONE(cuLinkComplete) NONE(cuLinkCreate) NONE(cuLinkDestroy) NONE(cuModuleGetFunction)
NONE(cuModuleLoadData) NONE(cuModuleUnload) NONE(cuOccupancyMaxPotentialClusterSize) NONE(cuStreamGetCtx)
NONE(cuTensorMapEncodeIm2col) NONE(cuTensorMapEncodeTiled)
