#include "mpi/options.h"

#include "common/number.h"
#include "mpi/data.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MEMORY_LIMIT_BYTES (512u << 20)
#define DEFAULT_WINDOW 64
#define MESSAGE_MAX_BYTES ((size_t)1 << 30)
#define ITERATIONS_MAX 1000000000ull
#define WINDOW_MAX 65536
#define COUNT_MAX 1000000
#define RADIUS_MAX 1024
#define DEFAULT_THREADS_SEND 1
#define DEFAULT_THREADS_RECEIVE 2
#define MEMORY_MAX_BYTES INT32_MAX /* displacements in MPI are int */

const char *const options_window_types[] = {"allocate", "create", "dynamic", NULL};
const char *const options_syncs[] = {"lock", "flush", "flush_local", "lock_all",
                                     "pscw", "fence", NULL};

static int read_between(const char *text, uint64_t min, uint64_t max, uint64_t *number,
                        const char *what, struct failure *failure)
{
    const char *end = number_read(text, number);

    if (end == NULL || *end != '\0' || *number < min || *number > max)
        return failure_set(failure, "'%s': %s is a number from %llu to %llu", text, what,
                           (unsigned long long)min, (unsigned long long)max);
    return 0;
}

/* MAX, MIN: or MIN:MAX */
static int read_sizes(struct options *options, const char *text, struct failure *failure)
{
    uint64_t first = 0, last = 0;
    const char *at = number_read(text, &first);

    if (at != NULL && *at == '\0') {
        options->has_size_max = true;
        last = first;
        first = 0;
    } else if (at != NULL && *at == ':') {
        options->has_size_min = true;
        options->has_size_max = at[1] != '\0';
        last = MESSAGE_MAX_BYTES;
        at = at[1] == '\0' ? at + 1 : number_read(at + 1, &last);
    }
    if (at == NULL || *at != '\0' || first > last || last > MESSAGE_MAX_BYTES)
        return failure_set(failure, "-m '%s': sizes are MAX, MIN: or MIN:MAX in bytes, at most %zu",
                           text, MESSAGE_MAX_BYTES);
    options->size_min_bytes = (size_t)first;
    options->size_max_bytes = (size_t)last;
    return 0;
}

static int read_percentiles(struct options *options, const char *text, struct failure *failure)
{
    options->tail = true;
    while (text != NULL && *text != '\0') {
        char *end;
        double percent = strtod(text, &end);

        if (end == text || !(percent > 0 && percent < 100) || (*end != ',' && *end != '\0') ||
            options->percentile_count == OPTIONS_PERCENTILES_MAX)
            return failure_set(failure,
                               "-z '%s': up to %d percentiles above 0 and below 100, "
                               "separated by commas and without a space after -z",
                               text, OPTIONS_PERCENTILES_MAX);
        options->percentiles[options->percentile_count++] = percent;
        text = *end == ',' ? end + 1 : end;
    }
    return 0;
}

static int read_datatypes(struct options *options, const char *text, struct failure *failure)
{
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        unsigned found = 0;

        for (int i = 0; i < DATATYPE_COUNT; i++)
            if (strlen(datatype_name(i)) == length && strncmp(datatype_name(i), text, length) == 0)
                found = 1u << i;
        if (length == 3 && strncmp(text, "all", 3) == 0)
            found = (1u << DATATYPE_COUNT) - 1;
        if (found == 0)
            return failure_set(failure, "-T '%s': all, or of mpi_char, mpi_int, mpi_float", text);
        options->datatypes |= found;
        text += length + (text[length] == ',');
    }
    return 0;
}

/* OMB's -t: a number of calls, or of threads: at the receiver, or S:R at the sender and the
 * receiver. */
static int read_calls_or_threads(struct options *options, const char *text, struct failure *failure)
{
    uint64_t first = 0, second = 0;
    const char *at = number_read(text, &first);
    bool both = at != NULL && *at == ':';

    if (both)
        at = number_read(at + 1, &second);
    if (at == NULL || *at != '\0' || first > COUNT_MAX || second > COUNT_MAX ||
        (both && (first < 1 || second < 1)))
        return failure_set(failure,
                           "-t '%s': a number of test calls, or of threads as R or S:R, at most %d",
                           text, COUNT_MAX);
    options->test_calls = (int)first;
    options->threads_send = both ? (int)first : DEFAULT_THREADS_SEND;
    options->threads_receive = both        ? (int)second
                               : first > 0 ? (int)first
                                           : DEFAULT_THREADS_RECEIVE;
    return 0;
}

/* cart:D or cart:D:R */
static int read_grid(struct options *options, const char *text, struct failure *failure)
{
    static const char prefix[] = "cart:";
    uint64_t dimensions = 0, radius = 1;
    const char *at = NULL;

    if (strncmp(text, prefix, sizeof prefix - 1) == 0)
        at = number_read(text + sizeof prefix - 1, &dimensions);
    if (at != NULL && *at == ':')
        at = number_read(at + 1, &radius);
    if (at == NULL || *at != '\0' || dimensions < 1 || dimensions > OPTIONS_DIMENSIONS_MAX ||
        radius < 1 || radius > RADIUS_MAX)
        return failure_set(failure,
                           "-N '%s': cart:D:R with 1 to %d dimensions and a radius of 1 to %d",
                           text, OPTIONS_DIMENSIONS_MAX, RADIUS_MAX);
    options->grid_dimensions = (int)dimensions;
    options->grid_radius = (int)radius;
    return 0;
}

/* The index of `text` in `names`, or -1. */
static int read_choice(const char *text, const char *const *names, const char *option,
                       struct failure *failure)
{
    char all[128] = "";

    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], text) == 0)
            return i;
        strncat(all, i == 0 ? "" : ", ", sizeof all - strlen(all) - 1);
        strncat(all, names[i], sizeof all - strlen(all) - 1);
    }
    return failure_set(failure, "%s '%s': one of %s", option, text, all);
}

/* Letters of long options that have no short one. */
enum { LONG_JSON = 256, LONG_NO_VALIDATION, LONG_CORRUPT, LONG_LIST };

/* One option; also what --help says. `argument` NULL: it takes none. */
static const struct {
    int letter;
    const char *name;
    const char *argument;
    const char *help;
} known[] = {
    {'m', "message-size", "[MIN:]MAX", "sizes in bytes, doubled from MIN to MAX; MIN: alone, too"},
    {'i', "iterations", "N", "timed iterations at every size"},
    {'x', "warmup", "N", "iterations before them"},
    {'c', "validation", NULL, "fresh data in every iteration, all checked; a column says so"},
    {'u', "validation-warmup", "N", "the same as -x"},
    {'f', "full", NULL, "more columns: minimum, maximum, iterations"},
    {'z', "tail-lat", "[P,..]", "percentiles over the iterations, such as -z50,99.9 (50,90,99)"},
    {'T', "type", "NAME,..", "datatypes: all, or of mpi_char, mpi_int, mpi_float"},
    {'M', "mem-limit", "BYTES", "buffers of one rank at most; larger sizes are left out (512M)"},
    {'W', "window-size", "N", "messages in flight in bandwidth forms (64)"},
    {'b', "buffer-num", "KIND", "buffers of a window: single or multiple (single)"},
    {'p', "pairs", "N", "pairs of ranks that take part (half of the ranks)"},
    {'t', "num-test-calls", "N", "overlap forms: calls of MPI_Test during the computation (0)"},
    {'t', "num-threads", "[S:]R",
     "latency_mt, latency_mp: threads or processes at both ends (1:2)"},
    {'N', "neighborhood", "cart:D:R",
     "neighbours up to R steps away in a grid of D dimensions (cart:1:1)"},
    {'R', "print-rate", "0|1", "messages per second of mbw_mr (1)"},
    {'w', "win-option", "KIND", "how windows are made: allocate, create, dynamic (allocate)"},
    {'s', "sync-option", "KIND", "lock, flush, flush_local, lock_all, pscw, fence (flush)"},
    {LONG_JSON, "json", NULL, "one JSON object per size on a line (see README.md)"},
    {LONG_NO_VALIDATION, "no-validation", NULL, "do not check the data (for simulators)"},
    {LONG_CORRUPT, "corrupt", NULL, "damage what arrives: every sample must then fail"},
    {LONG_LIST, "list", NULL, "print the benchmarks, one a line, with group and ranks"},
    {'h', "help", NULL, "print this"},
    {'v', "version", NULL, "print the version"},
};

#define KNOWN_COUNT (sizeof known / sizeof *known)

void options_describe(FILE *out)
{
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        char name[64];

        snprintf(name, sizeof name, "--%s %s", known[i].name,
                 known[i].argument == NULL ? "" : known[i].argument);
        fprintf(out, "  %c%c %-28s %s\n", known[i].letter < LONG_JSON ? '-' : ' ',
                known[i].letter < LONG_JSON ? known[i].letter : ' ', name, known[i].help);
    }
}

static int read_int(const char *text, uint64_t max, int *number, const char *what,
                    struct failure *failure)
{
    uint64_t value = 0;

    if (read_between(text, 1, max, &value, what, failure) < 0)
        return -1;
    *number = (int)value;
    return 0;
}

/* Options without a value of their own. */
static void set_flag(struct options *options, int letter)
{
    switch (letter) {
    case 'c':
        options->validate_each = true;
        break;
    case 'f':
        options->full = true;
        break;
    case LONG_JSON:
        options->json = true;
        break;
    case LONG_NO_VALIDATION:
        options->validate = false;
        break;
    case LONG_CORRUPT:
        options->corrupt = true;
        break;
    case LONG_LIST:
        options->action = OPTIONS_LIST;
        break;
    case 'h':
        options->action = OPTIONS_HELP;
        break;
    case 'v':
        options->action = OPTIONS_VERSION;
        break;
    }
}

static int set_choice(struct options *options, int letter, const char *text,
                      struct failure *failure)
{
    static const char *const buffers[] = {"single", "multiple", NULL};
    static const char *const rates[] = {"0", "1", NULL};
    int index;

    switch (letter) {
    case 'b':
        index = read_choice(text, buffers, "-b", failure);
        options->many_buffers = index == 1;
        return index;
    case 'R':
        index = read_choice(text, rates, "-R", failure);
        options->message_rate = index == 1;
        return index;
    case 'w':
        index = read_choice(text, options_window_types, "-w", failure);
        options->window_type = (enum window_type)index;
        return index;
    default:
        index = read_choice(text, options_syncs, "-s", failure);
        options->sync = (enum sync)index;
        options->has_sync = true;
        return index;
    }
}

static int set(struct options *options, int letter, const char *text, struct failure *failure)
{
    uint64_t number = 0;

    switch (letter) {
    case 'm':
        return read_sizes(options, text, failure);
    case 'z':
        return read_percentiles(options, text, failure);
    case 'T':
        return read_datatypes(options, text, failure);
    case 'i':
        return read_between(text, 1, ITERATIONS_MAX, &options->iterations, "-i", failure);
    case 'x':
    case 'u':
        options->has_warmup = true;
        return read_between(text, 0, ITERATIONS_MAX, &options->warmup, "-x", failure);
    case 'M':
        if (read_between(text, 1, MEMORY_MAX_BYTES, &number, "-M", failure) < 0)
            return -1;
        options->memory_limit_bytes = (size_t)number;
        return 0;
    case 'W':
        return read_int(text, WINDOW_MAX, &options->window, "-W", failure);
    case 'p':
        return read_int(text, WINDOW_MAX, &options->pairs, "-p", failure);
    case 'N':
        return read_grid(options, text, failure);
    case 't':
        return read_calls_or_threads(options, text, failure);
    case 'b':
    case 'R':
    case 'w':
    case 's':
        return set_choice(options, letter, text, failure) < 0 ? -1 : 0;
    default:
        set_flag(options, letter);
        return 0;
    }
}

/* getopt's two tables, from ours. */
static void getopt_tables(char letters[2 + 3 * KNOWN_COUNT], struct option longs[KNOWN_COUNT + 1])
{
    *letters++ = ':';
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        const char *argument = known[i].argument;
        int colons = argument == NULL ? 0 : argument[0] == '[' && argument[1] == 'P' ? 2 : 1;

        longs[i] = (struct option){known[i].name, colons, NULL, known[i].letter};
        if (known[i].letter >= LONG_JSON)
            continue;
        *letters++ = (char)known[i].letter;
        for (int colon = 0; colon < colons; colon++)
            *letters++ = ':';
    }
    *letters = '\0';
    longs[KNOWN_COUNT] = (struct option){NULL, 0, NULL, 0};
}

int options_parse(struct options *options, int argc, char **argv, struct failure *failure)
{
    char letters[2 + 3 * KNOWN_COUNT];
    struct option longs[KNOWN_COUNT + 1];
    int letter;

    *options = (struct options){
        .memory_limit_bytes = DEFAULT_MEMORY_LIMIT_BYTES,
        .window = DEFAULT_WINDOW,
        .grid_dimensions = 1,
        .grid_radius = 1,
        .threads_send = DEFAULT_THREADS_SEND,
        .threads_receive = DEFAULT_THREADS_RECEIVE,
        .validate = true,
        .message_rate = true,
    };
    getopt_tables(letters, longs);
    optind = 0; /* start afresh: ranks may share a process */
    while ((letter = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
        if (letter == ':')
            return failure_set(failure, "%s needs a value; see --help", argv[optind - 1]);
        if (letter == '?')
            return failure_set(failure, "no option %s; --help has the options", argv[optind - 1]);
        if (set(options, letter, optarg, failure) < 0)
            return -1;
    }
    if (options->validate_each && !options->validate)
        return failure_set(failure, "-c and --no-validation exclude each other");
    if (argc - optind >= OPTIONS_NAMES_MAX)
        return failure_set(failure, "at most %d names of benchmarks", OPTIONS_NAMES_MAX - 1);
    for (int i = optind; i < argc; i++)
        options->names[i - optind] = argv[i];
    return 0;
}
