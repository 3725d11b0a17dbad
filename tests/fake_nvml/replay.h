/*
 * Answers from a recording: which of its rows counts at this moment.
 *
 *     nvmlDeviceGetPowerUsage replay:/PATH
 *     replay_speed 4                  the recording passes four times as fast (default 1)
 *     replay_now file:/PATH           the time in the recording (us) is in a file, for tests without a clock
 *     replay_unix_us 1500000000       when it begins on the clock since 1970 (default: when the library is first used)
 *
 * A row of such a file is the time since the begin of the recording (us), ascending, and a step as a scenario has it:
 *
 *     0 120000
 *     20150 !15
 *     40300 0.8~118000
 *
 * A row counts until the next one; the first one also before its time, the last one for ever. In the file of
 * nvmlDeviceGetSamples a row has the samples that became known with it, and their time stamps are in the recording's time:
 *
 *     170000 150000=90,168000=85
 *
 * All rows so far are the driver's buffer.
 */
enum { MAX_REPLAYS = 64 };

typedef struct { double t_us; char *step; } row_t;
typedef struct { char *path; row_t *rows; int count; } replay_t;

static replay_t replays[MAX_REPLAYS];
static int replay_count;
static double replay_began_us, replay_began_unix_us;

static char *content(char *step);

static int is_replay(const char *step) { return step && !strncmp(step, "replay:", 7); }

static double replay_speed(void)
{
    line_t *line = find("replay_speed", -1);
    return line && line->count ? atof(line->steps[0]) : 1;
}

/* Time since the begin of the recording (us). */
static double replay_now_us(void)
{
    line_t *line = find("replay_now", -1);
    if (line && line->count)
        return atof(content(line->steps[0]));
    return (clock_us(CLOCK_MONOTONIC) - replay_began_us) * replay_speed();
}

/* A time of the recording (us) on today's clock since 1970 (us). */
static u64 replay_stamp(double t_us)
{
    double began_us = (double)property("replay_unix_us", (u64)replay_began_unix_us);
    return (u64)(began_us + t_us / replay_speed());
}

static replay_t *open_replay(const char *step)
{
    const char *path = step + 7;
    for (int i = 0; i < replay_count; i++)
        if (!strcmp(replays[i].path, path))
            return &replays[i];
    if (replay_count == MAX_REPLAYS)
        return NULL;
    if (!replay_count) {
        replay_began_us = clock_us(CLOCK_MONOTONIC);
        replay_began_unix_us = clock_us(CLOCK_REALTIME);
    }
    replay_t *replay = &replays[replay_count++];
    replay->path = strdup(path);
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t room = 0;
    int rows = 0;
    while (file && getline(&text, &room, file) > 0) {
        char *end;
        double t_us = strtod(text, &end);
        end[strcspn(end, "\n")] = 0;
        if (end == text || *end != ' ')
            continue;
        if (replay->count == rows)
            replay->rows = realloc(replay->rows, (size_t)(rows = 2 * rows + 64) * sizeof *replay->rows);
        replay->rows[replay->count++] = (row_t){t_us, strdup(end + 1)};
    }
    free(text);
    if (file)
        fclose(file);
    return replay;
}

/* Number of rows whose time has come. */
static int passed_rows(const replay_t *replay)
{
    double now_us = replay_now_us();
    int low = 0, high = replay->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (replay->rows[middle].t_us <= now_us)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static char *replayed_step(const char *step)
{
    replay_t *replay = open_replay(step);
    if (!replay || !replay->count)
        return NULL;
    int passed = passed_rows(replay);
    return replay->rows[passed ? passed - 1 : 0].step;
}
