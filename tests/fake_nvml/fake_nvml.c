/*
 * A stand-in for libnvidia-ml.so.1: what each call answers is read from a scenario file, so that the real Python
 * binding and our sampler can be tested without a GPU. It proves logic and error handling, never timing.
 *
 * scenario.h says how a scenario is written. Compiled with -DOLD_DRIVER, the calls that came with driver 510 and later
 * are missing from the library.
 */
#include "scenario.h"

typedef union { double d; unsigned int ui; u64 ull; } value_t;
typedef struct {
    unsigned int field, scope;
    long long time_stamp, latency_us;
    unsigned int type, result;
    value_t value;
} field_t;
typedef struct {
    unsigned int metric, result;
    double value;
    char *short_name, *long_name, *unit;
} metric_t;
typedef struct { int gpu; u64 serial; } gpm_sample_t;
typedef struct {
    unsigned int version, count;
    gpm_sample_t *older, *newer;
    metric_t metrics[];
} metrics_get_t;

static int started;

static int ready(const char *name)
{
    record(name);
    be_slow();
    return started > 0 ? SUCCESS : UNINITIALIZED;
}

/* One scripted number for one GPU. */
static int ask(const char *name, gpu_t *gpu, u64 *number)
{
    int code = ready(name);
    return code ? code : take_number(name, gpu->number, number);
}

static int ask_uint(const char *name, gpu_t *gpu, unsigned int *out)
{
    u64 number = 0;
    int code = ask(name, gpu, &number);
    if (code == SUCCESS)
        *out = (unsigned int)number;
    return code;
}

#include "processes.h"

int nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    record("nvmlInit");
    u64 ignored;
    int code = find("nvmlInit", 0) ? take_number("nvmlInit", 0, &ignored) : SUCCESS;
    started += code == SUCCESS;
    return code;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void)
{
    int code = ready("nvmlShutdown");
    started -= code == SUCCESS;
    return code;
}

const char *nvmlErrorString(int code)
{
    static char text[32];
    snprintf(text, sizeof text, "Fake error %d", code);
    return text;
}

int nvmlSystemGetDriverVersion(char *out, unsigned int size)
{
    int code = ready("nvmlSystemGetDriverVersion");
    return code ? code : give_text("driver", -1, "999.99", out, size);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = (int)property("cuda", 13000);
    return ready("nvmlSystemGetCudaDriverVersion_v2");
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    *count = (unsigned int)property("gpus", 1);
    return ready("nvmlDeviceGetCount_v2");
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, gpu_t **gpu)
{
    int code = ready("nvmlDeviceGetHandleByIndex_v2");
    if (code == SUCCESS && index >= property("gpus", 1))
        return INVALID_ARGUMENT;
    line_t *line = find("nvmlDeviceGetHandleByIndex_v2", (int)index);
    *gpu = &gpus[index];
    return code ? code : line ? error_of(turn(line, (int)index)) : SUCCESS;
}

int nvmlDeviceGetUUID(gpu_t *gpu, char *out, unsigned int size)
{
    char otherwise[NAME_CHARS];
    snprintf(otherwise, sizeof otherwise, "GPU-%d", gpu->number);
    int code = ready("nvmlDeviceGetUUID");
    return code ? code : give_text("uuid", gpu->number, otherwise, out, size);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, gpu_t **gpu)
{
    int code = ready("nvmlDeviceGetHandleByUUID");
    for (u64 i = 0; code == SUCCESS && i < property("gpus", 1) + property("slices", 0); i++) {
        char name[NAME_CHARS * 2];
        if (nvmlDeviceGetUUID(&gpus[i], name, sizeof name) == SUCCESS && !strcmp(uuid, name)) {
            *gpu = &gpus[i];
            return SUCCESS;
        }
    }
    return code ? code : NOT_FOUND;
}

int nvmlDeviceGetIndex(gpu_t *gpu, unsigned int *index)
{
    *index = (unsigned int)gpu->number;
    return ready("nvmlDeviceGetIndex");
}

int nvmlDeviceGetName(gpu_t *gpu, char *out, unsigned int size)
{
    int code = ready("nvmlDeviceGetName");
    return code ? code : give_text("name", gpu->number, "Fake GPU", out, size);
}

int nvmlDeviceGetMemoryInfo(gpu_t *gpu, u64 *memory)
{
    u64 used = 0;
    int code = ask("nvmlDeviceGetMemoryInfo", gpu, &used);
    memory[0] = property("memory", 80ULL << 30);
    memory[1] = memory[0] - used;
    memory[2] = used;
    return code;
}

int nvmlDeviceGetUtilizationRates(gpu_t *gpu, unsigned int *rates)
{
    rates[1] = 0;
    return ask_uint("nvmlDeviceGetUtilizationRates", gpu, &rates[0]);
}

int nvmlDeviceGetPowerUsage(gpu_t *gpu, unsigned int *milliwatts)
{
    return ask_uint("nvmlDeviceGetPowerUsage", gpu, milliwatts);
}

int nvmlDeviceGetEnforcedPowerLimit(gpu_t *gpu, unsigned int *milliwatts)
{
    return ask_uint("nvmlDeviceGetEnforcedPowerLimit", gpu, milliwatts);
}

/* One scripted number per kind of clock, e.g. nvmlDeviceGetClockInfo.1 for the multiprocessors'. */
static int ask_clock(const char *name, gpu_t *gpu, int kind, unsigned int *mhz)
{
    char numbered[NAME_CHARS];
    snprintf(numbered, sizeof numbered, "%s.%d", name, kind);
    return ask_uint(numbered, gpu, mhz);
}

int nvmlDeviceGetClockInfo(gpu_t *gpu, int kind, unsigned int *mhz)
{
    return ask_clock("nvmlDeviceGetClockInfo", gpu, kind, mhz);
}

int nvmlDeviceGetMaxClockInfo(gpu_t *gpu, int kind, unsigned int *mhz)
{
    return ask_clock("nvmlDeviceGetMaxClockInfo", gpu, kind, mhz);
}

int nvmlDeviceGetTotalEnergyConsumption(gpu_t *gpu, u64 *millijoules)
{
    return ask("nvmlDeviceGetTotalEnergyConsumption", gpu, millijoules);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(gpu_t *gpu, u64 *reasons)
{
    return ask("nvmlDeviceGetCurrentClocksThrottleReasons", gpu, reasons);
}

int nvmlDeviceGetPcieThroughput(gpu_t *gpu, int counter, unsigned int *value)
{
    (void)counter;
    return ask_uint("nvmlDeviceGetPcieThroughput", gpu, value);
}

#include "samples.h"

int nvmlDeviceGetFieldValues(gpu_t *gpu, int count, field_t *fields)
{
    int code = ready("nvmlDeviceGetFieldValues");
    u64 ignored;
    if (code == SUCCESS && find("nvmlDeviceGetFieldValues", gpu->number))
        code = take_number("nvmlDeviceGetFieldValues", gpu->number, &ignored);
    for (int i = 0; code == SUCCESS && i < count; i++) {
        char name[NAME_CHARS];
        u64 number = 0;
        snprintf(name, sizeof name, "field.%u", fields[i].field);
        record(name);
        line_t *line = find(name, gpu->number);
        fields[i].result = (unsigned int)take_number(name, gpu->number, &number);
        fields[i].type = line && line->narrow ? 1 : 3;
        fields[i].value.ull = 0;
        if (line && line->narrow)
            fields[i].value.ui = (unsigned int)number;
        else
            fields[i].value.ull = number;
    }
    return code;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetJpgUtilization(gpu_t *gpu, unsigned int *used, unsigned int *period_us)
{
    *period_us = 167000;
    return ask_uint("nvmlDeviceGetJpgUtilization", gpu, used);
}

int nvmlDeviceGetCurrentClocksEventReasons(gpu_t *gpu, u64 *reasons)
{
    return ask("nvmlDeviceGetCurrentClocksEventReasons", gpu, reasons);
}

int nvmlDeviceGetGpuInstanceId(gpu_t *gpu, unsigned int *instance)
{
    return ask_uint("nvmlDeviceGetGpuInstanceId", gpu, instance);
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(gpu_t *slice, gpu_t **gpu)
{
    *gpu = &gpus[0];
    int code = ready("nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
    return code ? code : slice->number < (int)property("gpus", 1) ? INVALID_ARGUMENT : SUCCESS;
}

int nvmlGpmQueryDeviceSupport(gpu_t *gpu, unsigned int *support)
{
    return ask_uint("nvmlGpmQueryDeviceSupport", gpu, &support[1]);
}

int nvmlGpmSampleAlloc(gpm_sample_t **sample)
{
    *sample = calloc(1, sizeof **sample);
    return ready("nvmlGpmSampleAlloc");
}

int nvmlGpmSampleFree(gpm_sample_t *sample)
{
    free(sample);
    return ready("nvmlGpmSampleFree");
}

static u64 gpm_serial;

static int fill(const char *name, gpu_t *gpu, gpm_sample_t *sample)
{
    int code = ready(name);
    u64 ignored;
    if (code == SUCCESS && find(name, gpu->number))
        code = take_number(name, gpu->number, &ignored);
    sample->gpu = gpu->number;
    sample->serial = ++gpm_serial;
    return code;
}

int nvmlGpmSampleGet(gpu_t *gpu, gpm_sample_t *sample) { return fill("nvmlGpmSampleGet", gpu, sample); }

int nvmlGpmMigSampleGet(gpu_t *gpu, unsigned int instance, gpm_sample_t *sample)
{
    (void)instance;
    return fill("nvmlGpmMigSampleGet", gpu, sample);
}

int nvmlGpmMetricsGet(metrics_get_t *question)
{
    int code = ready("nvmlGpmMetricsGet");
    if (code)
        return code;
    if (question->version != 1 || question->older == question->newer || question->older->serial == 0 ||
        question->older->serial >= question->newer->serial)
        return INVALID_ARGUMENT;
    for (unsigned int i = 0; i < question->count; i++) {
        char name[NAME_CHARS], *value = NULL;
        line_t *line;
        snprintf(name, sizeof name, "metric.%u", question->metrics[i].metric);
        question->metrics[i].result = (unsigned int)take(name, question->newer->gpu, &value, &line);
        question->metrics[i].value = question->metrics[i].result ? 0 : atof(value);
    }
    return SUCCESS;
}
#endif
