// Kernels: registered, launched, and never run. Also what torch asks the driver for through the runtime.
#include "runtime.h"

#include <vector_types.h>

#include <cstring>

#include "timeline.h"

using namespace fake;
typedef cudaError_t E;

static thread_local struct {
    dim3 grid, block;
    size_t shared;
    void *stream;
} configuration;

static E start(const char *function, void *stream)
{
    if (int scripted = scripted_failure(function))
        return result(scripted);
    Stream &on = stream_of(stream);
    if (on.device != current_device())
        return result(cudaErrorInvalidResourceHandle);
    launch(on);
    return cudaSuccess;
}

EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
    configuration = {grid, block, shared, stream};
    return 0;
}
EXPORT E __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void **stream)
{
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *stream = configuration.stream;
    return cudaSuccess;
}
EXPORT E cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *stream)
{
    return start("cudaLaunchKernel", stream);
}
EXPORT E __cudaLaunchKernel(void *, dim3, dim3, void **, size_t, void *stream) { return start("cudaLaunchKernel", stream); }
EXPORT E cudaLaunchCooperativeKernel(const void *, dim3, dim3, void **, size_t, void *stream)
{
    return start("cudaLaunchKernel", stream);
}
EXPORT E cudaLaunchKernelExC(const cudaLaunchConfig_t *with, const void *, void **)
{
    return start("cudaLaunchKernel", with->stream);
}
EXPORT E __cudaGetKernel(void **kernel, const void *function) { return *kernel = (void *)function, cudaSuccess; }
EXPORT void **__cudaRegisterFatBinary(void *)
{
    static void *handle;
    return &handle;
}
EXPORT void __cudaRegisterFatBinaryEnd(void **) {}
EXPORT void __cudaUnregisterFatBinary(void **) {}
EXPORT void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *) {}
EXPORT void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}
EXPORT char __cudaInitModule(void **) { return 0; }

EXPORT E cudaFuncGetAttributes(cudaFuncAttributes *found, const void *)
{
    memset(found, 0, sizeof *found);
    found->maxThreadsPerBlock = 1024;
    found->numRegs = 32;
    found->ptxVersion = found->binaryVersion = knobs().capability;
    return cudaSuccess;
}
EXPORT E cudaFuncSetAttribute(const void *, cudaFuncAttribute, int) { return cudaSuccess; }
EXPORT E cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int, size_t)
{
    return *blocks = 2, cudaSuccess;
}
EXPORT E cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *, int, size_t, unsigned)
{
    return *blocks = 2, cudaSuccess;
}
EXPORT E cudaLaunchHostFunc(void *stream, void (*function)(void *), void *with)
{
    observe_stream(stream_of(stream));
    function(with);
    return cudaSuccess;
}

// The driver's functions do nothing and succeed; but they know which devices have a context.
static int nothing(...) { return 0; }
static int current_context(void **context)
{
    static int one;
    return *context = &one, 0;
}
static int context_state(int device, unsigned *flags, int *active)
{
    if (flags)
        *flags = 0;
    if (active)
        *active = counters.contexts[device] != 0;
    return 0;
}
EXPORT E cudaGetDriverEntryPointByVersion(const char *name, void **found, unsigned, unsigned long long, int *status)
{
    *found = !strcmp(name, "cuDevicePrimaryCtxGetState") ? (void *)context_state
             : !strcmp(name, "cuCtxGetCurrent")          ? (void *)current_context
                                                         : (void *)nothing;
    if (status)
        *status = 0;
    return cudaSuccess;
}

// cuBLAS: whatever torch calls of it takes the time of a kernel. (Convolutions without cuDNN are such calls.)

struct Blas {
    void *stream = nullptr;
    int pointers = 0, math = 0;
};

EXPORT int cublasCreate_v2(Blas **handle)
{
    if (int scripted = scripted_failure(__func__))
        return scripted < 100 ? scripted : 1;  // a cublasStatus_t; CUBLAS_STATUS_NOT_INITIALIZED where the device is lost
    return *handle = new Blas, 0;
}
EXPORT int cublasDestroy_v2(Blas *handle) { return delete handle, 0; }
EXPORT int cublasSetStream_v2(Blas *handle, void *stream) { return handle->stream = stream, 0; }
EXPORT int cublasSetWorkspace_v2(Blas *, void *, size_t) { return 0; }
EXPORT int cublasSetMathMode(Blas *handle, int mode) { return handle->math = mode, 0; }
EXPORT int cublasGetMathMode(Blas *handle, int *mode) { return *mode = handle->math, 0; }
EXPORT int cublasSetPointerMode_v2(Blas *handle, int mode) { return handle->pointers = mode, 0; }
EXPORT int cublasGetPointerMode_v2(Blas *handle, int *mode) { return *mode = handle->pointers, 0; }

#define BLAS(name) \
    EXPORT int name(Blas *handle, ...) { return start("cublas", handle->stream) ? 13 /* CUBLAS_STATUS_EXECUTION_FAILED */ : 0; }
BLAS(cublasSgemm_v2)
BLAS(cublasDgemm_v2)
BLAS(cublasSgemmEx)
BLAS(cublasGemmEx)
BLAS(cublasSgemmStridedBatched)
BLAS(cublasGemmStridedBatchedEx)
BLAS(cublasSgemv_v2)
BLAS(cublasSdot_v2)
BLAS(cublasDotEx)

EXPORT size_t cublasLtGetVersion() { return 130100; }
#define MAKE(name) \
    EXPORT int name(void **made, ...) { return *made = new char[8], 0; }
#define TAKE(name) \
    EXPORT int name(...) { return 0; }
MAKE(cublasLtMatmulDescCreate)
MAKE(cublasLtMatrixLayoutCreate)
MAKE(cublasLtMatmulPreferenceCreate)
TAKE(cublasLtMatmulDescDestroy)
TAKE(cublasLtMatmulDescSetAttribute)
TAKE(cublasLtMatrixLayoutDestroy)
TAKE(cublasLtMatrixLayoutSetAttribute)
TAKE(cublasLtMatmulPreferenceDestroy)
TAKE(cublasLtMatmulPreferenceSetAttribute)
EXPORT int cublasLtMatmulAlgoGetHeuristic(
    void *, void *, void *, void *, void *, void *, void *, int, char *found, int *count)
{
    memset(found, 0, 96);  // one cublasLtMatmulHeuristicResult_t: usable, no workspace
    return *count = 1, 0;
}
EXPORT int cublasLtMatmul(
    void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, void *, void *,
    void *, const void *, void *, size_t, void *stream)
{
    return start("cublas", stream) ? 13 : 0;
}
