/*
 * Stands for libcuda.so.1, which torch's libraries are linked with. Its functions succeed and do nothing, but cuInit: who
 * asks the driver directly (DALI, FFmpeg) finds no device.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

int cuInit(unsigned flags) { return flags ? 1 : 100; /* CUDA_ERROR_NO_DEVICE */ }

int cuCtxGetCurrent(void **context)
{
    static int one;
    *context = &one;
    return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    int (*has_context)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "fake_cuda_has_context");
    *flags = 0;
    *active = has_context && has_context(device);
    return 0;
}

#define NOTHING(name) \
    int name(void) { return 0; }
NOTHING(cuCtxSetCurrent)
NOTHING(cuDeviceGet)
NOTHING(cuDeviceGetAttribute)
NOTHING(cuDevicePrimaryCtxRetain)
NOTHING(cuFuncGetAttribute)
NOTHING(cuFuncSetAttribute)
NOTHING(cuFuncSetCacheConfig)
NOTHING(cuGetErrorString)
NOTHING(cuLaunchCooperativeKernel)
NOTHING(cuLaunchKernel)
NOTHING(cuLinkAddData_v2)
NOTHING(cuLinkComplete)
NOTHING(cuLinkCreate_v2)
NOTHING(cuModuleGetFunction)
NOTHING(cuModuleLoad)
NOTHING(cuModuleLoadData)
NOTHING(cuModuleLoadDataEx)
NOTHING(cuModuleUnload)
NOTHING(cuOccupancyMaxActiveBlocksPerMultiprocessor)
NOTHING(cuPointerGetAttribute)
NOTHING(cuTensorMapEncodeTiled)
