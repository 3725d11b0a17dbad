/*
 * The samples of a GPU's utilisation that the driver keeps: those of a scenario, or all that a recording had until now.
 */
typedef struct { u64 time_stamp; value_t value; } sample_t;

/* Add the samples of a scenario's step that were not seen before; of a recording's row their times are relative. */
static unsigned int parse_samples(char *place, u64 seen, int relative, sample_t *found, unsigned int number)
{
    while (place && *place && strcmp(place, "-") && *place != '!' && number < MAX_STEPS) {
        if (!strncmp(place, "now", 3)) {
            found[number].time_stamp = (u64)clock_us(CLOCK_REALTIME);
            place += 3;
        } else if (relative) {
            found[number].time_stamp = replay_stamp(strtod(place, &place));
        } else {
            found[number].time_stamp = strtoull(place, &place, 10);
        }
        found[number].value.ull = 0;
        found[number].value.ui = (unsigned int)strtoul(place + 1, &place, 10);
        number += found[number].time_stamp > seen;
        place = *place == ',' ? place + 1 : NULL;
    }
    return number;
}

/* All rows of a recording until now, or as many of the newest as the buffer holds. */
static unsigned int replayed_samples(const char *step, u64 seen, sample_t *found)
{
    enum { BUFFERED_ROWS = 200 };
    replay_t *replay = open_replay(step);
    unsigned int number = 0;
    int passed = replay ? passed_rows(replay) : 0;
    for (int i = passed > BUFFERED_ROWS ? passed - BUFFERED_ROWS : 0; i < passed; i++)
        number = parse_samples(after_delay(replay->rows[i].step), seen, 1, found, number);
    return number;
}

/* As the driver does: asked without a buffer it tells the size; samples that were seen before are left out. */
int nvmlDeviceGetSamples(gpu_t *gpu, int kind, u64 seen, unsigned int *type, unsigned int *count, sample_t *samples)
{
    (void)kind;
    const char *name = "nvmlDeviceGetSamples";
    int code = ready(name);
    if (code)
        return code;
    line_t *line = find(name, gpu->number);
    int replays_it = line && line->count && is_replay(line->steps[0]);
    char *step = turn(line, gpu->number), *unused;
    sample_t found[MAX_STEPS];
    if (replays_it ? step && error_of(after_delay(step)) : error_of(step))
        return take(name, gpu->number, &unused, &line);
    unsigned int number = replays_it ? replayed_samples(line->steps[0], seen, found)
                                     : parse_samples(after_delay(step), seen, 0, found, 0);
    *type = 1;
    if (number == 0) {
        take(name, gpu->number, &unused, &line);
        return NOT_FOUND;
    }
    if (samples) {
        if (*count < number)
            return INSUFFICIENT_SIZE;
        memcpy(samples, found, number * sizeof *found);
        take(name, gpu->number, &unused, &line);
    }
    *count = number;
    return SUCCESS;
}
