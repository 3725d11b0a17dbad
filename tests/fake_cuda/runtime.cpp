// The functions of libcudart that torch wants: devices, streams, events, memory. Kernels are in launch.cpp.
#include "runtime.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "devices.h"
#include "memory.h"
#include "timeline.h"

using namespace fake;
typedef cudaError_t E;

static thread_local E last_error = cudaSuccess;

namespace fake {

E result(int error)
{
    if (error)
        last_error = (E)error;
    return (E)error;
}

}  // namespace fake

EXPORT E cudaGetLastError()
{
    E found = last_error;
    last_error = cudaSuccess;
    return found;
}
EXPORT E cudaPeekAtLastError() { return last_error; }

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
};

EXPORT const char *cudaGetErrorName(E error)
{
    for (auto &one : errors)
        if (one.code == error)
            return one.name;
    return "cudaErrorUnknown";
}
EXPORT const char *cudaGetErrorString(E error)
{
    for (auto &one : errors)
        if (one.code == error)
            return one.text;
    return "unknown error";
}

// Devices

EXPORT E cudaDriverGetVersion(int *version) { return *version = knobs().driver, cudaSuccess; }
EXPORT E cudaRuntimeGetVersion(int *version) { return *version = CUDA_RUNTIME, cudaSuccess; }
EXPORT E cudaGetDeviceCount(int *count)
{
    SCRIPTED
    *count = 0;
    if (knobs().driver / 1000 < CUDA_RUNTIME / 1000)
        return result(cudaErrorInsufficientDriver);
    *count = (int)visible().size();
    return result(*count ? cudaSuccess : cudaErrorNoDevice);
}
EXPORT E cudaGetDevice(int *device) { return *device = current_device(), cudaSuccess; }
EXPORT E cudaSetDevice(int device)
{
    SCRIPTED
    if (device < 0 || device >= (int)visible().size())
        return result(cudaErrorInvalidDevice);
    current_device() = device;
    use_device();
    return cudaSuccess;
}
EXPORT E cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    if (device < 0 || device >= (int)visible().size())
        return result(cudaErrorInvalidDevice);
    describe(properties, visible()[device]);
    return cudaSuccess;
}
EXPORT E cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int) { return *value = attribute(which), cudaSuccess; }
EXPORT E cudaDeviceGetPCIBusId(char *text, int length, int device)
{
    snprintf(text, length, "0000:%02x:00.0", visible()[device]);
    return cudaSuccess;
}
EXPORT E cudaDeviceCanAccessPeer(int *can, int, int) { return *can = 0, cudaSuccess; }
EXPORT E cudaDeviceSynchronize()
{
    SCRIPTED
    use_device();
    counters.synchronisations++;
    observe_device(current_device());
    return cudaSuccess;
}
EXPORT E cudaProfilerStart() { return cudaSuccess; }
EXPORT E cudaProfilerStop() { return cudaSuccess; }

// Memory

static void make_context()
{
    static std::once_flag once;
    std::call_once(once, [] { std::this_thread::sleep_for(std::chrono::nanoseconds((int64_t)knobs().context_ns)); });
}

EXPORT E cudaMalloc(void **at, size_t bytes)
{
    SCRIPTED
    make_context();
    use_device();
    *at = allocate_device(bytes);
    return result(*at ? cudaSuccess : cudaErrorMemoryAllocation);
}
EXPORT E cudaFree(void *at) { return result(!at || free_device(at) ? cudaSuccess : cudaErrorInvalidValue); }
EXPORT E cudaHostAlloc(void **at, size_t bytes, unsigned)
{
    SCRIPTED
    use_device();
    *at = allocate_locked(bytes);
    return result(*at ? cudaSuccess : cudaErrorMemoryAllocation);
}
EXPORT E cudaFreeHost(void *at) { return result(!at || free_locked(at) ? cudaSuccess : cudaErrorInvalidValue); }
EXPORT E cudaHostRegister(void *at, size_t bytes, unsigned)
{
    SCRIPTED
    use_device();
    if (whose(at) == PAGE_LOCKED)
        return result(cudaErrorHostMemoryAlreadyRegistered);
    return result(register_locked(at, bytes) ? cudaSuccess : cudaErrorMemoryAllocation);
}
EXPORT E cudaHostUnregister(void *at)
{
    use_device();
    return result(unregister_locked(at) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}
EXPORT E cudaMemGetInfo(size_t *free, size_t *total)
{
    use_device();
    *total = knobs().memory_bytes;
    *free = *total - counters.device_bytes[current_device()];
    return cudaSuccess;
}
EXPORT E cudaPointerGetAttributes(cudaPointerAttributes *found, const void *at)
{
    int owner = whose(at);
    *found = {};
    found->device = owner >= 0 ? owner : owner == PAGE_LOCKED ? current_device() : -1;
    found->type = owner >= 0               ? cudaMemoryTypeDevice
                  : owner == PAGE_LOCKED ? cudaMemoryTypeHost
                                         : cudaMemoryTypeUnregistered;
    found->devicePointer = owner == PAGEABLE ? nullptr : (void *)at;
    found->hostPointer = owner >= 0 ? nullptr : (void *)at;
    return cudaSuccess;
}
EXPORT E cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, void *stream)
{
    SCRIPTED
    if (bytes)
        copy(to, from, bytes, stream_of(stream));
    return cudaSuccess;
}
EXPORT E cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    E error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    counters.synchronisations++;
    observe_stream(stream_of(nullptr));
    return error;
}
EXPORT E cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t bytes, void *stream)
{
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}
EXPORT E cudaMemsetAsync(void *at, int value, size_t bytes, void *stream)
{
    SCRIPTED
    fill(at, value, bytes, stream_of(stream));
    return cudaSuccess;
}
EXPORT E cudaMemset(void *at, int value, size_t bytes) { return cudaMemsetAsync(at, value, bytes, nullptr); }
EXPORT E cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, cudaMemcpyKind) { return cudaSuccess; }
EXPORT E cudaGetSymbolAddress(void **at, const void *symbol) { return *at = (void *)symbol, cudaSuccess; }

// Streams

EXPORT E cudaStreamCreateWithPriority(void **stream, unsigned, int)
{
    SCRIPTED
    use_device();
    auto *made = new Stream;
    made->device = current_device();
    *stream = made;
    return cudaSuccess;
}
EXPORT E cudaStreamCreateWithFlags(void **stream, unsigned flags) { return cudaStreamCreateWithPriority(stream, flags, 0); }
EXPORT E cudaStreamCreate(void **stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
EXPORT E cudaStreamDestroy(void *) { return cudaSuccess; }  // kept: events may name it
EXPORT E cudaStreamQuery(void *stream)
{
    SCRIPTED
    Stream &one = stream_of(stream);
    if (one.free_at > now_ns())
        return result(cudaErrorNotReady);
    observe_stream(one);
    return cudaSuccess;
}
EXPORT E cudaStreamSynchronize(void *stream)
{
    SCRIPTED
    counters.synchronisations++;
    observe_stream(stream_of(stream));
    return cudaSuccess;
}
EXPORT E cudaStreamWaitEvent(void *stream, Event *event, unsigned)
{
    SCRIPTED
    wait_for(stream_of(stream), *event);
    return cudaSuccess;
}
EXPORT E cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return cudaSuccess;
}
EXPORT E cudaStreamGetPriority(void *, int *priority) { return *priority = 0, cudaSuccess; }
EXPORT E cudaStreamIsCapturing(void *, cudaStreamCaptureStatus *status)
{
    return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
EXPORT E cudaStreamGetCaptureInfo(void *, cudaStreamCaptureStatus *status, ...)  // the rest is written when capturing
{
    return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
EXPORT E cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *) { return cudaSuccess; }

// Events

EXPORT E cudaEventCreateWithFlags(Event **event, unsigned)
{
    SCRIPTED
    use_device();
    *event = new Event;
    (*event)->device = current_device();
    return cudaSuccess;
}
EXPORT E cudaEventCreate(Event **event) { return cudaEventCreateWithFlags(event, 0); }
EXPORT E cudaEventDestroy(Event *event) { return delete event, cudaSuccess; }
EXPORT E cudaEventRecord(Event *event, void *stream)
{
    SCRIPTED
    Stream &on = stream_of(stream);
    if (stream && on.device != event->device)
        return result(cudaErrorInvalidResourceHandle);
    record(*event, on);
    return cudaSuccess;
}
EXPORT E cudaEventRecordWithFlags(Event *event, void *stream, unsigned) { return cudaEventRecord(event, stream); }
EXPORT E cudaEventQuery(Event *event)
{
    SCRIPTED
    if (event->at > now_ns())
        return result(cudaErrorNotReady);
    observe(event->at, event->after);
    return cudaSuccess;
}
EXPORT E cudaEventSynchronize(Event *event)
{
    SCRIPTED
    observe(event->at, event->after);
    return cudaSuccess;
}
EXPORT E cudaEventElapsedTime(float *ms, Event *from, Event *to)
{
    if (!from->recorded || !to->recorded)
        return result(cudaErrorInvalidResourceHandle);
    if (from->at > now_ns() || to->at > now_ns())
        return result(cudaErrorNotReady);
    *ms = (float)((to->at - from->at) / 1e6);
    return cudaSuccess;
}

/// What was counted, as JSON.
EXPORT const char *fake_cuda_report()
{
    static std::string text;
    Hold hold(lock);
    auto list = [](auto *values) {
        std::string all;
        for (int i = 0; i < knobs().devices; i++)
            all += (i ? ", " : "") + std::to_string(values[i]);
        return "[" + all + "]";
    };
    auto field = [](const char *name, long value) { return std::string(", \"") + name + "\": " + std::to_string(value); };
    text = "{\"kernels\": " + list(counters.kernels) + ", \"device_bytes\": " + list(counters.device_bytes) +
           ", \"contexts\": " + list(counters.contexts) + field("h2d_locked", counters.h2d_locked) + field("h2d_pageable", counters.h2d_pageable) +
           field("d2h", counters.d2h) + field("d2d", counters.d2d) + field("races", counters.races) +
           field("synchronisations", counters.synchronisations) + field("locked_bytes", counters.locked_bytes) + "}";
    return text.c_str();
}

/// Whether this process has a context on a device; libcuda.so.1 is asked for it.
EXPORT int fake_cuda_has_context(int device) { return counters.contexts[device] != 0; }
