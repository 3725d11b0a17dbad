#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "knobs.h"
#include "timeline.h"

namespace fake {

struct Block {
    size_t bytes;
    int whose;
    bool ours;  // mapped by us, not registered
};

static std::map<uintptr_t, Block> blocks;

int whose(const void *at)
{
    Hold hold(lock);
    auto found = blocks.upper_bound((uintptr_t)at);
    if (found == blocks.begin())
        return PAGEABLE;
    --found;
    return (uintptr_t)at < found->first + found->second.bytes ? found->second.whose : PAGEABLE;
}

static void *map(size_t bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *at = mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE, flags, -1, 0);
    return at == MAP_FAILED ? nullptr : at;
}

void *allocate_device(size_t bytes)
{
    Hold hold(lock);
    int device = current_device();
    if (counters.device_bytes[device] + (int64_t)bytes > knobs().memory_bytes)
        return nullptr;
    void *at = map(bytes);
    if (at) {
        blocks[(uintptr_t)at] = {bytes, device, true};
        counters.device_bytes[device] += bytes;
    }
    return at;
}

// All pages that the block touches: madvise takes whole ones.
static void set_inherited(void *at, size_t bytes, bool inherited)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)at & ~(page - 1), end = ((uintptr_t)at + bytes + page - 1) & ~(page - 1);
    madvise((void *)first, end - first, inherited ? MADV_DOFORK : MADV_DONTFORK);
}

static bool lock_pages(void *at, size_t bytes, bool ours)
{
    if (!at || (knobs().locked_bytes && counters.locked_bytes + (int64_t)bytes > knobs().locked_bytes))
        return false;
    blocks[(uintptr_t)at] = {bytes, PAGE_LOCKED, ours};
    counters.locked_bytes += bytes;
    if (knobs().dont_fork)
        set_inherited(at, bytes, false);
    return true;
}

void *allocate_locked(size_t bytes)
{
    Hold hold(lock);
    void *at = map(bytes);
    if (at && !lock_pages(at, bytes, true)) {
        munmap(at, bytes);
        return nullptr;
    }
    return at;
}

bool register_locked(void *at, size_t bytes)
{
    Hold hold(lock);
    return lock_pages(at, bytes, false);
}

static bool release(void *at, bool device, bool ours)
{
    Hold hold(lock);
    auto found = blocks.find((uintptr_t)at);
    if (found == blocks.end() || (found->second.whose >= 0) != device || found->second.ours != ours)
        return false;
    Block block = found->second;
    if (has_queued_copy(at, block.bytes))
        report_race("were released while a copy of them was queued", at, block.bytes);
    (device ? counters.device_bytes[block.whose] : counters.locked_bytes) -= block.bytes;
    blocks.erase(found);
    if (!device && knobs().dont_fork)
        set_inherited(at, block.bytes, true);
    if (ours)
        munmap(at, std::max<size_t>(block.bytes, 1));
    return true;
}

bool free_device(void *at)
{
    int device = whose(at);
    if (device < 0)
        return false;
    observe_device(device);  // cudaFree waits for the device
    return release(at, true, true);
}

bool free_locked(void *at) { return release(at, false, true); }

bool unregister_locked(void *at) { return release(at, false, false); }

}  // namespace fake
