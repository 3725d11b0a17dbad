/*
 * The script of the fake NVML, and whose turn it is in it.
 *
 * FAKE_NVML_SCENARIO names the scenario: one line per call or property, '#' begins a comment.
 *
 *     gpus 2                              how many GPUs are listed (default 1)
 *     slices 1                            MIG slices; the first is numbered after the last GPU and cut from GPU 0
 *     driver 550.54.15
 *     cuda 13000                          the newest CUDA that the driver runs
 *     name@1 Fake H100                    @N: only for GPU N; without it, for all
 *     uuid@1 GPU-1
 *     nvmlDeviceGetMemoryInfo 5 7         first call 5, all later ones 7
 *     nvmlDeviceGetMemoryInfo 5 7 ...     5, 7, 5, 7, ...
 *     nvmlDeviceGetPowerUsage 5 !15 +3    an NVML error code; the value before plus 3
 *     nvmlDeviceGetPowerUsage 20~5        5, after 20 ms
 *     nvmlDeviceGetSamples 10=90,20=95 -  the driver's buffer as time stamp (us) = utilisation; empty
 *     nvmlDeviceGetSamples now=90 now=0 ...   stamped with the time of the call: a pattern for tests in real time
 *     field.197 100 200                   one field value; field.197:u32 makes it an unsigned int instead of 64 bits
 *     metric.2 55.5                       one GPM metric
 *     nvmlDeviceGetClockInfo.1 1410       MHz of one kind of clock; 1: the multiprocessors'
 *     processes@0 42,43 42 -              PIDs of nvmlDeviceGetComputeRunningProcesses, whichever version; none
 *     process_use 42=60,43=35             PID = % of the multiprocessors' time in nvmlDeviceGetProcessUtilization, now
 *     process_bytes 32                    size of a record of its _v3 (default 24; 32 from driver 535.43 to 535.86)
 *     nvmlDeviceGetUtilizationRates file:/PATH   the first word of a file, read anew at each call
 *     nvmlDeviceGetUtilizationRates replay:/PATH what was recorded for this moment; replay.h says how
 *     call_us 1000                        every call of the sampler takes that long at least, asleep
 *     spin_us 1000                        the same on the processor, as a driver that polls the GPU
 *
 * A file stands wherever one number or list of PIDs does, also after a delay (20~file:/PATH) and for an error code
 * (!15 in the file); its path is without spaces and '#'. Without the file the answer is "not supported", after which
 * nobody asks again: create it first. An empty one answers "no data", so that it may be overwritten in place.
 *
 * A line further down wins over one further up, and one with @N over one without. A call without a line answers
 * "not supported". Every call is counted per GPU, and written to the file FAKE_NVML_LOG if that is set.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { NO_DATA = 21 };
enum { MAX_GPUS = 8, MAX_LINES = 256, MAX_STEPS = 256, NAME_CHARS = 64 };

typedef unsigned long long u64;
typedef struct { int number; } gpu_t;
typedef struct {
    char name[NAME_CHARS];
    int gpu; /* -1: all */
    char *text;
    char *steps[MAX_STEPS];
    int count, cycles, narrow;
    int calls[MAX_GPUS];
    u64 before[MAX_GPUS];
} line_t;

static line_t lines[MAX_LINES];
static gpu_t gpus[MAX_GPUS];
static int line_count, loaded;

static void load(void)
{
    loaded = 1;
    for (int i = 0; i < MAX_GPUS; i++)
        gpus[i].number = i;
    const char *path = getenv("FAKE_NVML_SCENARIO");
    FILE *file = path ? fopen(path, "r") : NULL;
    char buffer[16384];
    while (file && line_count < MAX_LINES && fgets(buffer, sizeof buffer, file)) {
        buffer[strcspn(buffer, "#\n")] = 0;
        char *rest, *head = strtok_r(buffer, " \t", &rest);
        if (!head)
            continue;
        line_t *line = &lines[line_count++];
        char *at = strchr(head, '@'), *colon = strchr(head, ':');
        line->gpu = at ? atoi(at + 1) : -1;
        line->narrow = colon != NULL;
        snprintf(line->name, sizeof line->name, "%.*s", (int)strcspn(head, "@:"), head);
        line->text = strdup(rest);
        char *copy = strdup(rest), *place;
        for (char *step = strtok_r(copy, " \t", &place); step && line->count < MAX_STEPS;
             step = strtok_r(NULL, " \t", &place)) {
            if (!strcmp(step, "..."))
                line->cycles = 1;
            else
                line->steps[line->count++] = step;
        }
    }
    if (file)
        fclose(file);
}

static line_t *find(const char *name, int gpu)
{
    if (!loaded)
        load();
    line_t *general = NULL;
    for (int i = line_count - 1; i >= 0; i--) {
        if (strcmp(lines[i].name, name))
            continue;
        if (lines[i].gpu == gpu)
            return &lines[i];
        if (lines[i].gpu < 0 && !general)
            general = &lines[i];
    }
    return general;
}

static u64 property(const char *name, u64 otherwise)
{
    line_t *line = find(name, -1);
    return line && line->count ? strtoull(line->steps[0], NULL, 10) : otherwise;
}

static int give_text(const char *name, int gpu, const char *otherwise, char *out, unsigned int size)
{
    line_t *line = find(name, gpu);
    if (line && line->count && line->steps[0][0] == '!')
        return atoi(line->steps[0] + 1);
    const char *text = line ? line->text : otherwise;
    if (strlen(text) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

static void record(const char *name)
{
    const char *path = getenv("FAKE_NVML_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%s\n", name);
        fclose(file);
    }
}

static double clock_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void sleep_us(double us)
{
    struct timespec pause = {(time_t)(us / 1e6), (long)(us * 1e3) % 1000000000L};
    nanosleep(&pause, NULL);
}

/* What every call takes, whatever it answers. */
static void be_slow(void)
{
    u64 call_us = property("call_us", 0), spin_us = property("spin_us", 0);
    if (call_us)
        sleep_us((double)call_us);
    for (double end = clock_us(CLOCK_MONOTONIC) + (double)spin_us; spin_us && clock_us(CLOCK_MONOTONIC) < end;)
        ;
}

#include "replay.h"

/* The step whose turn it is, without taking it; NULL when nothing is scripted. */
static char *turn(line_t *line, int gpu)
{
    if (!line || !line->count)
        return NULL;
    if (is_replay(line->steps[0]))
        return replayed_step(line->steps[0]);
    int call = line->calls[gpu];
    return line->steps[line->cycles ? call % line->count : call < line->count ? call : line->count - 1];
}

static int error_of(const char *step)
{
    return !step ? NOT_SUPPORTED : *step == '!' ? atoi(step + 1) : SUCCESS;
}

/* What stands behind a delay, which is a number before a '~'; the path of a file may have one, too. */
static char *after_delay(char *step)
{
    char *end = step + strspn(step, "0123456789.");
    return *end == '~' && end > step ? end + 1 : step;
}

/* The value of a step without its delay: itself, or what is in its file; an error code as a step of its own. */
static char *content(char *step)
{
    static char text[4096];
    if (!step || strncmp(step, "file:", 5))
        return step;
    FILE *file = fopen(step + 5, "r");
    if (!file)
        return NULL;
    if (fscanf(file, "%4095s", text) != 1)
        snprintf(text, sizeof text, "!%d", NO_DATA);
    fclose(file);
    return text;
}

/* Take one step: wait its delay, and return its error code or leave its value's text in *value. */
static int take(const char *name, int gpu, char **value, line_t **found)
{
    line_t *line = find(name, gpu);
    char *step = turn(line, gpu);
    *found = line;
    if (!step)
        return NOT_SUPPORTED;
    line->calls[gpu]++;
    char *behind = after_delay(step);
    if (behind != step)
        sleep_us(1e3 * atof(step));
    *value = content(behind);
    return error_of(*value);
}

static int take_number(const char *name, int gpu, u64 *number)
{
    char *value;
    line_t *line;
    int code = take(name, gpu, &value, &line);
    if (code == SUCCESS) {
        *number = strtoull(value, NULL, 10) + (*value == '+' ? line->before[gpu] : 0);
        line->before[gpu] = *number;
    }
    return code;
}
