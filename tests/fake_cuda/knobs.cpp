#include "knobs.h"

#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <sstream>

namespace fake {

static double number(const char *name, double otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atof(text) : otherwise;
}

static std::string text(const char *name, const char *otherwise)
{
    const char *found = getenv(name);
    return found && *found ? found : otherwise;
}

int64_t now_ns()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static Knobs read_knobs()
{
    Knobs k;
    k.devices = (int)number("FAKE_CUDA_DEVICES", 1);
    k.driver = (int)number("FAKE_CUDA_DRIVER", 13000);
    k.capability = (int)number("FAKE_CUDA_CAPABILITY", 80);
    k.memory_bytes = (int64_t)(number("FAKE_CUDA_MEMORY_MB", 16384) * (1 << 20));
    k.locked_bytes = (int64_t)(number("FAKE_CUDA_LOCKED_MB", 0) * (1 << 20));
    k.dont_fork = number("FAKE_CUDA_DONTFORK", 1) != 0;
    k.kernel_ns = 1e3 * number("FAKE_CUDA_KERNEL_US", 20);
    k.launch_ns = 1e3 * number("FAKE_CUDA_LAUNCH_US", 0);
    k.context_ns = 1e6 * number("FAKE_CUDA_CONTEXT_MS", 0);
    k.queue = (size_t)number("FAKE_CUDA_QUEUE", 1024);
    k.copy_bytes_per_ns = number("FAKE_CUDA_COPY_GBPS", 12);
    std::string mode = text("FAKE_CUDA_PAGEABLE", "staged");
    k.pageable = mode == "deferred" ? Pageable::deferred
                 : mode == "synchronous" ? Pageable::synchronous : Pageable::staged;
    k.slower_per_s = number("FAKE_CUDA_SLOWER_PER_S", 0);
    k.slower_max = number("FAKE_CUDA_SLOWER_MAX", 1);
    k.slower_from_ns = (int64_t)atoll(text("FAKE_CUDA_SLOWER_FROM_NS", std::to_string(now_ns()).c_str()).c_str());
    double sd = number("FAKE_CUDA_PACE_SD", 0);
    std::mt19937_64 random((uint64_t)now_ns() ^ (uint64_t)getpid() << 32);
    k.pace = sd > 0 ? std::max(0.1, std::normal_distribution<double>(1, sd)(random)) : 1;
    k.log = text("FAKE_CUDA_LOG", "");
    return k;
}

const Knobs &knobs()
{
    static const Knobs found = read_knobs();
    return found;
}

struct Failure {
    long at;
    int error;
    bool lost;
};

static std::map<std::string, Failure> read_failures()
{
    std::map<std::string, Failure> found;
    std::stringstream all(text("FAKE_CUDA_FAIL", ""));
    for (std::string one; std::getline(all, one, ',');) {
        std::stringstream parts(one);
        std::string name, at, error;
        std::getline(parts, name, ':');
        std::getline(parts, at, ':');
        std::getline(parts, error, ':');
        found[name] = {atol(at.c_str()), atoi(error.c_str()), !error.empty() && error.back() == '+'};
    }
    return found;
}

int scripted_failure(const char *function)
{
    static const std::map<std::string, Failure> failures = read_failures();
    static std::mutex lock;
    static std::map<std::string, long> calls;
    static std::atomic<int> lost{0};
    static const std::string lost_file = text("FAKE_CUDA_LOST", "");
    if (!lost_file.empty() && access(lost_file.c_str(), F_OK) == 0) {
        int error = 0;
        std::ifstream(lost_file) >> error;
        return error ? error : 719;  // cudaErrorLaunchFailure
    }
    if (failures.empty())
        return 0;
    if (lost)
        return lost;
    auto found = failures.find(function);
    if (found == failures.end())
        return 0;
    std::lock_guard<std::mutex> hold(lock);
    if (++calls[function] != found->second.at)
        return 0;
    if (found->second.lost)
        lost = found->second.error;
    return found->second.error;
}

}  // namespace fake
