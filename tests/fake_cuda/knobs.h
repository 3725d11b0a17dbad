// What the stand-in CUDA runtime does is set by environment variables, read once per process.
//
//     FAKE_CUDA_DEVICES=2             how many devices there are (default 1); CUDA_VISIBLE_DEVICES applies to them
//     FAKE_CUDA_DRIVER=12080          version of the driver; one below the runtime's is "insufficient"
//     FAKE_CUDA_CAPABILITY=75         compute capability, major and minor
//     FAKE_CUDA_MEMORY_MB=16384       memory of each device; allocating more fails
//     FAKE_CUDA_CONTEXT_MS=0          time that a process's first allocation takes: a driver that makes the context
//     FAKE_CUDA_LOCKED_MB=0           page-locked memory that this process may have; 0: no limit
//     FAKE_CUDA_DONTFORK=1            page-locked memory is not there in forked processes, as AMD's runtime has it and as
//                                     NVIDIA's may; 0: they inherit it
//     FAKE_CUDA_KERNEL_US=20          time that the device takes for each kernel
//     FAKE_CUDA_LAUNCH_US=0           CPU time that a launch takes, beside torch's own
//     FAKE_CUDA_QUEUE=1024            kernels that a stream queues before a launch waits
//     FAKE_CUDA_COPY_GBPS=12          rate of copies between host and device
//     FAKE_CUDA_PAGEABLE=staged       how a copy from pageable memory behaves, see below
//     FAKE_CUDA_SLOWER_PER_S=0.01     clock decay: kernels take 1 % longer with each second ...
//     FAKE_CUDA_SLOWER_FROM_NS=N      ... since this time of the monotonic clock (default: the start of the process) ...
//     FAKE_CUDA_SLOWER_MAX=0.25       ... up to this share
//     FAKE_CUDA_PACE_SD=0.02          kernels of a process take N(1, 0.02) times as long, drawn anew for each process
//     FAKE_CUDA_FAIL=cudaMalloc:3:2   the third call of cudaMalloc fails with error 2; cudaLaunchKernel:500:719+ as well,
//                                     and every call after it: a device that is lost. Several, separated by commas.
//     FAKE_CUDA_LOST=FILE             while this file exists each call that can be scripted fails, in every process, with
//                                     the error in it; empty: 719, a device that is lost
//     FAKE_CUDA_LOG=FILE              each buffer that is written or released too early is a line in this file
//
// Copies from pageable memory: CUDA's documents leave open when the driver reads the source. "staged": before the call
// returns, without waiting for the stream. "synchronous": the call returns when the copy has ended. "deferred": as late
// as from page-locked memory, which systems that address pageable memory directly (HMM, Grace) may do.
#pragma once
#include <cstdint>
#include <string>

namespace fake {

enum class Pageable { staged, synchronous, deferred };

struct Knobs {
    int devices, driver, capability;
    int64_t memory_bytes, locked_bytes;
    double kernel_ns, launch_ns, context_ns, copy_bytes_per_ns;
    size_t queue;
    bool dont_fork;
    Pageable pageable;
    double slower_per_s, slower_max;
    int64_t slower_from_ns;
    double pace;
    std::string log;
};

const Knobs &knobs();

/// The error that this call of a function has to fail with, by FAKE_CUDA_FAIL; 0: none.
int scripted_failure(const char *function);

int64_t now_ns();

}  // namespace fake
