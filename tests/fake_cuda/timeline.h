// Streams as timelines on the monotonic clock, and memory whose copies are as late as CUDA allows.
//
// A kernel does nothing but move its stream's end. A copy takes place when the host first observes that it has ended (by
// an event, a stream or the device that it is ordered before), which is the latest moment that CUDA allows: a source
// that was written again before then arrives wrong, and is reported, because its checksum differs from that at
// submission. What the host has observed is known exactly: each event carries the number of the last work of every
// stream that is ordered before it (a vector clock).
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace fake {

struct Stream;
using Observed = std::map<Stream *, uint64_t>;

struct Stream {
    int device;
    int64_t free_at = 0;
    uint64_t submitted = 0;
    Observed after;            // of other streams: what this one has waited for
    std::deque<int64_t> ends;  // of the kernels that are queued
};

struct Event {
    int device;
    bool recorded = false;
    int64_t at = 0;
    Observed after;
};

enum { MAX_DEVICES = 16 };

struct Counters {
    long kernels[MAX_DEVICES], h2d_locked, h2d_pageable, d2h, d2d, synchronisations, races;
    int64_t device_bytes[MAX_DEVICES], locked_bytes;
    long contexts[MAX_DEVICES];  // 1 where this process has a context
};

extern std::recursive_mutex lock;
extern Counters counters;

using Hold = std::lock_guard<std::recursive_mutex>;

/// The stream that a handle stands for; the default stream of the current device for null.
Stream &stream_of(void *handle);
int &current_device();
/// Make a context on the current device, as the first call does that needs one.
void use_device();

void launch(Stream &stream);
void record(Event &event, Stream &stream);
void wait_for(Stream &stream, const Event &event);

/// Sleep until a time, then carry out all work that is ordered before what was observed.
void observe(int64_t end_ns, const Observed &seen);
void observe_stream(Stream &stream);
void observe_device(int device);

/// What cudaMemcpyAsync does, and cudaMemsetAsync.
void copy(void *to, const void *from, size_t bytes, Stream &stream);
void fill(void *to, int value, size_t bytes, Stream &stream);

/// Whether a copy from or to these bytes has not been carried out yet.
bool has_queued_copy(const void *at, size_t bytes);
/// Count and log a buffer that was written or released too early.
void report_race(const char *what, const void *at, size_t bytes);

}  // namespace fake
