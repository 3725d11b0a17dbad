#include "timeline.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "knobs.h"
#include "memory.h"

namespace fake {

std::recursive_mutex lock;
Counters counters;

struct Copy {
    Stream *stream;
    uint64_t number;
    void *to;
    const void *from;  // null: fill with `value`
    size_t bytes;
    int value;
    bool checked;
    uint64_t sum;
    std::shared_ptr<std::vector<char>> staged;
};

static std::multimap<int64_t, Copy> pending;  // by the time at which they end
static int64_t bus_free_at[MAX_DEVICES];

int &current_device()
{
    static thread_local int device = 0;
    return device;
}

void use_device() { counters.contexts[current_device()] = 1; }

Stream &stream_of(void *handle)
{
    use_device();
    static Stream defaults[MAX_DEVICES];
    if ((uintptr_t)handle > 2)
        return *(Stream *)handle;
    Stream &found = defaults[current_device()];
    found.device = current_device();
    return found;
}

void report_race(const char *what, const void *at, size_t bytes)
{
    counters.races++;
    char line[200];
    int length = snprintf(line, sizeof line, "race in process %d: %zu bytes at %p %s\n", getpid(), bytes, at, what);
    FILE *file = knobs().log.empty() ? stderr : fopen(knobs().log.c_str(), "a");
    if (file) {
        fwrite(line, 1, length, file);
        file == stderr ? fflush(file) : fclose(file);
    }
}

static bool is_mapped(const void *at, size_t bytes)
{
    static const uintptr_t page = sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)at & ~(page - 1), end = (uintptr_t)at + bytes;
    std::vector<unsigned char> resident((end - first + page - 1) / page);
    return mincore((void *)first, end - first, resident.data()) == 0;
}

static uint64_t checksum(const void *at, size_t bytes)
{
    uint64_t sum = 1469598103934665603ULL;
    auto *byte = (const unsigned char *)at;
    size_t step = std::max<size_t>(1, bytes / 8192);
    for (size_t i = 0; i < bytes; i += step)
        sum = (sum ^ byte[i]) * 1099511628211ULL;
    return sum;
}

static void carry_out(const Copy &copy)
{
    if (!copy.from) {
        memset(copy.to, copy.value, copy.bytes);
        return;
    }
    if (!is_mapped(copy.from, copy.bytes)) {
        report_race("were unmapped while a copy of them was queued", copy.from, copy.bytes);
        return;
    }
    if (copy.checked && checksum(copy.from, copy.bytes) != copy.sum)
        report_race("were written again while a copy of them was queued", copy.from, copy.bytes);
    memcpy(copy.to, copy.from, copy.bytes);
}

void observe(int64_t end_ns, const Observed &seen)
{
    if (end_ns > now_ns()) {
        timespec t{(time_t)(end_ns / 1000000000), (long)(end_ns % 1000000000)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) != 0)
            ;
    }
    Hold hold(lock);
    for (auto one = pending.begin(); one != pending.end();) {
        auto last = seen.find(one->second.stream);
        if (last == seen.end() || one->second.number > last->second) {
            ++one;
            continue;
        }
        carry_out(one->second);
        one = pending.erase(one);
    }
}

static Observed all_of(Stream &stream)
{
    Observed seen = stream.after;
    seen[&stream] = stream.submitted;
    return seen;
}

void observe_stream(Stream &stream)
{
    int64_t end;
    Observed seen;
    {
        Hold hold(lock);
        end = stream.free_at;
        seen = all_of(stream);
    }
    observe(end, seen);
}

static std::vector<Stream *> &streams_of(int device)
{
    static std::vector<Stream *> found[MAX_DEVICES];
    return found[device];
}

void observe_device(int device)
{
    int64_t end = 0;
    Observed seen;
    {
        Hold hold(lock);
        for (Stream *stream : streams_of(device)) {
            end = std::max(end, stream->free_at);
            for (auto &[other, number] : all_of(*stream))
                seen[other] = std::max(seen[other], number);
        }
    }
    observe(end, seen);
}

static void extend(Stream &stream, int64_t duration_ns)
{
    if (!stream.submitted++)
        streams_of(stream.device).push_back(&stream);
    stream.free_at = std::max(stream.free_at, now_ns()) + duration_ns;
}

static double slower()
{
    const Knobs &k = knobs();
    if (k.slower_per_s <= 0)
        return k.pace;
    return k.pace * (1 + std::min(k.slower_max, k.slower_per_s * (now_ns() - k.slower_from_ns) / 1e9));
}

void launch(Stream &stream)
{
    int64_t wait_until = 0;
    {
        Hold hold(lock);
        counters.kernels[stream.device]++;
        extend(stream, (int64_t)(knobs().kernel_ns * slower()));
        stream.ends.push_back(stream.free_at);
        while (!stream.ends.empty() && stream.ends.front() <= now_ns())
            stream.ends.pop_front();
        if (stream.ends.size() > knobs().queue)
            wait_until = stream.ends[stream.ends.size() - 1 - knobs().queue];
    }
    observe(wait_until, {});
    if (knobs().launch_ns > 0)
        for (int64_t until = now_ns() + (int64_t)knobs().launch_ns; now_ns() < until;)
            ;
}

void record(Event &event, Stream &stream)
{
    Hold hold(lock);
    event.recorded = true;
    event.at = std::max(stream.free_at, now_ns());
    event.after = all_of(stream);
}

void wait_for(Stream &stream, const Event &event)
{
    Hold hold(lock);
    stream.free_at = std::max(stream.free_at, event.at);
    for (auto &[other, number] : event.after)
        stream.after[other] = std::max(stream.after[other], number);
}

static void queue(Stream &stream, int64_t duration_ns, int bus, Copy copy)
{
    if (bus >= 0)  // one copy at a time in each direction's engine; both directions share it here
        stream.free_at = std::max(stream.free_at, bus_free_at[bus]);
    extend(stream, duration_ns);
    if (bus >= 0)
        bus_free_at[bus] = stream.free_at;
    copy.stream = &stream;
    copy.number = stream.submitted;
    pending.emplace(stream.free_at, copy);
}

void copy(void *to, const void *from, size_t bytes, Stream &stream)
{
    int to_whose = whose(to), from_whose = whose(from);
    bool to_device = to_whose >= 0, from_device = from_whose >= 0;
    int host = to_device ? from_whose : to_whose;
    bool wait = false;
    {
        Hold hold(lock);
        Copy one{nullptr, 0, to, from, bytes, 0, false, 0, nullptr};
        double rate = to_device && from_device ? 900 : knobs().copy_bytes_per_ns;
        auto duration = (int64_t)(bytes / rate);
        if (to_device && from_device) {
            counters.d2d++;
            queue(stream, duration, -1, one);
        } else if (to_device) {
            (host == PAGE_LOCKED ? counters.h2d_locked : counters.h2d_pageable)++;
            Pageable mode = host == PAGE_LOCKED ? Pageable::deferred : knobs().pageable;
            if (mode == Pageable::deferred) {
                one.checked = true;
                one.sum = checksum(from, bytes);
                queue(stream, duration, to_whose, one);
            } else {
                // The driver's own copy of the source; the device's memory is written in the stream's order.
                one.staged = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
                one.from = one.staged->data();
                queue(stream, duration, to_whose, one);
                wait = mode == Pageable::synchronous;
            }
        } else {
            counters.d2h++;
            queue(stream, duration, from_device ? from_whose : -1, one);
            wait = host != PAGE_LOCKED;
        }
    }
    if (wait) {
        counters.synchronisations++;
        observe_stream(stream);
    }
}

void fill(void *to, int value, size_t bytes, Stream &stream)
{
    Hold hold(lock);
    queue(stream, (int64_t)knobs().kernel_ns, -1, {nullptr, 0, to, nullptr, bytes, value, false, 0, nullptr});
}

bool has_queued_copy(const void *at, size_t bytes)
{
    Hold hold(lock);
    auto begin = (const char *)at, end = begin + bytes;
    return std::any_of(pending.begin(), pending.end(), [&](auto &one) {
        auto *from = (const char *)one.second.from, *to = (const char *)one.second.to;
        return (from >= begin && from < end) || (to >= begin && to < end);
    });
}

}  // namespace fake
