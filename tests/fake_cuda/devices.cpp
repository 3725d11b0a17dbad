#include "devices.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

#include "knobs.h"
#include "timeline.h"

namespace fake {

static std::string uuid_of(int number)
{
    char text[64];
    snprintf(text, sizeof text, "GPU-0000000%x-0000-0000-0000-00000000000%x", number & 15, number & 15);
    return text;
}

static int named(const std::string &entry)
{
    char *end;
    long number = strtol(entry.c_str(), &end, 10);
    if (!entry.empty() && !*end)
        return number >= 0 && number < knobs().devices ? (int)number : -1;
    int found = -1;
    for (int i = 0; i < knobs().devices && entry.size() > 4; i++)
        if (uuid_of(i).compare(0, entry.size(), entry) == 0)
            found = found < 0 ? i : -1;
    return found;
}

const std::vector<int> &visible()
{
    static const std::vector<int> found = [] {
        std::vector<int> numbers;
        const char *list = getenv("CUDA_VISIBLE_DEVICES");
        if (!list) {
            for (int i = 0; i < knobs().devices; i++)
                numbers.push_back(i);
            return numbers;
        }
        std::stringstream entries(list);
        for (std::string entry; std::getline(entries, entry, ',');) {
            int number = named(entry);
            if (number < 0)
                break;
            numbers.push_back(number);
        }
        return numbers;
    }();
    return found;
}

void describe(cudaDeviceProp *p, int number)
{
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "Fake GPU %d", number);
    p->uuid.bytes[3] = p->uuid.bytes[15] = (char)number;
    p->major = knobs().capability / 10;
    p->minor = knobs().capability % 10;
    p->pciBusID = number;
    p->totalGlobalMem = knobs().memory_bytes;
    p->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
    p->warpSize = attribute(cudaDevAttrWarpSize);
    p->maxThreadsPerBlock = attribute(cudaDevAttrMaxThreadsPerBlock);
    p->maxThreadsPerMultiProcessor = attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
    p->sharedMemPerBlock = attribute(cudaDevAttrMaxSharedMemoryPerBlock);
    p->sharedMemPerBlockOptin = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    p->sharedMemPerMultiprocessor = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 65536;
    p->textureAlignment = 512;
    p->l2CacheSize = 40 << 20;
    p->canMapHostMemory = p->unifiedAddressing = p->concurrentKernels = 1;
    p->asyncEngineCount = 2;
}

int attribute(cudaDeviceAttr which)
{
    switch (which) {
    case cudaDevAttrMaxThreadsPerBlock: return 1024;
    case cudaDevAttrMaxSharedMemoryPerBlock: return 49152;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMultiProcessorCount: return 108;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
    case cudaDevAttrComputeCapabilityMajor: return knobs().capability / 10;
    case cudaDevAttrComputeCapabilityMinor: return knobs().capability % 10;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return 167936;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return 166912;
    case cudaDevAttrMaxBlocksPerMultiprocessor: return 32;
    default: return 0;
    }
}

}  // namespace fake
