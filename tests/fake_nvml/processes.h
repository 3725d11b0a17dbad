/*
 * Who computes on a GPU, and what is asked along with it: the number of its device file and its MIG slices.
 *
 * The binding asks each list twice, for its length and then for its records. That is one call of the scenario: the step
 * is taken, its delay included, when there is an answer. The binding doubles the length and adds 5, so the records of
 * 32 bytes that some drivers wrote fit into its buffer and are misread, not overrun.
 */
enum { RECORD_BYTES = 24 };

typedef struct {
    unsigned int pid;
    u64 memory;
    unsigned int gpu_instance, compute_instance;
} process_t;

static unsigned int listed(const char *list)
{
    unsigned int number = *list >= '0' && *list <= '9';
    for (; number && *list; list++)
        number += *list == ',';
    return number;
}

static int processes(const char *name, gpu_t *gpu, unsigned int *room, char *out, size_t bytes)
{
    int code = ready(name);
    if (code)
        return code;
    line_t *line = find("processes", gpu->number);
    char *step = turn(line, gpu->number), *list = step ? content(after_delay(step)) : NULL;
    unsigned int number = error_of(list) ? 0 : listed(list);
    if (number > *room) {
        *room = number;
        return INSUFFICIENT_SIZE;
    }
    code = take("processes", gpu->number, &list, &line);
    if (code)
        return code;
    /* A file may have changed meanwhile. */
    *room = listed(list) < number ? listed(list) : number;
    for (unsigned int i = 0; i < *room; i++) {
        process_t process = {(unsigned int)strtoul(list, &list, 10), 1 << 30, ~0U, ~0U};
        memset(out + i * bytes, 0, bytes);
        memcpy(out + i * bytes, &process, sizeof process);
        list += *list == ',';
    }
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v2(gpu_t *gpu, unsigned int *room, char *out)
{
    return processes("nvmlDeviceGetComputeRunningProcesses_v2", gpu, room, out, RECORD_BYTES);
}

#ifndef OLD_DRIVER
int nvmlDeviceGetComputeRunningProcesses_v3(gpu_t *gpu, unsigned int *room, char *out)
{
    u64 bytes = property("process_bytes", RECORD_BYTES);
    return processes("nvmlDeviceGetComputeRunningProcesses_v3", gpu, room, out, bytes);
}
#endif

typedef struct {
    unsigned int pid;
    u64 time_stamp;
    unsigned int sm, memory, encoder, decoder;
} process_use_t;

/* Asked without a buffer it tells the size, as the driver does; those that were seen before are not left out. */
int nvmlDeviceGetProcessUtilization(gpu_t *gpu, process_use_t *uses, unsigned int *room, u64 seen)
{
    (void)seen;
    const char *name = "nvmlDeviceGetProcessUtilization";
    int code = ready(name);
    if (code)
        return code;
    line_t *line = find("process_use", gpu->number);
    char *step = turn(line, gpu->number), *list = step ? content(after_delay(step)) : NULL;
    unsigned int number = error_of(list) ? 0 : listed(list);
    if (number > *room) {
        *room = number;
        return INSUFFICIENT_SIZE;
    }
    code = take("process_use", gpu->number, &list, &line);
    if (code || !number)
        return code ? code : NOT_FOUND;
    *room = number;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (unsigned int i = 0; i < number; i++) {
        memset(&uses[i], 0, sizeof uses[i]);
        uses[i].pid = (unsigned int)strtoul(list, &list, 10);
        uses[i].sm = (unsigned int)strtoul(list + 1, &list, 10);
        uses[i].time_stamp = (u64)now.tv_sec * 1000000 + (u64)now.tv_nsec / 1000;
        list += *list == ',';
    }
    return SUCCESS;
}

int nvmlDeviceGetMinorNumber(gpu_t *gpu, unsigned int *minor)
{
    return ask_uint("nvmlDeviceGetMinorNumber", gpu, minor);
}

int nvmlDeviceGetMaxMigDeviceCount(gpu_t *gpu, unsigned int *count)
{
    *count = gpu->number == 0 ? (unsigned int)property("slices", 0) : 0;
    return ready("nvmlDeviceGetMaxMigDeviceCount");
}

int nvmlDeviceGetMigDeviceHandleByIndex(gpu_t *gpu, unsigned int index, gpu_t **slice)
{
    int code = ready("nvmlDeviceGetMigDeviceHandleByIndex");
    if (code == SUCCESS && (gpu->number != 0 || index >= property("slices", 0)))
        return NOT_FOUND;
    *slice = &gpus[property("gpus", 1) + index];
    return code;
}
