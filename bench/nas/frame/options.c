#include "nas/frame/options.h"

#include "common/number.h"
#include "nas/frame/run.h"

#include <getopt.h>
#include <limits.h>
#include <string.h>

enum {
    OPTION_ITERATIONS = 'i',
    OPTION_JSON = 256,
    OPTION_MEMORY,
    OPTION_CORRUPT,
    OPTION_MODEL,
    OPTION_LIST
};

static const struct option known[] = {
    {"iterations", required_argument, NULL, OPTION_ITERATIONS},
    {"json", no_argument, NULL, OPTION_JSON},
    {"memory", required_argument, NULL, OPTION_MEMORY},
    {"corrupt", no_argument, NULL, OPTION_CORRUPT},
    {"model", no_argument, NULL, OPTION_MODEL},
    {"list", no_argument, NULL, OPTION_LIST},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'v'},
    {NULL, 0, NULL, 0},
};

void options_describe(FILE *out)
{
    fputs("  -i, --iterations K  run only K iterations and scale the time; nothing is verified\n"
          "      --json          one line of JSON\n"
          "      --memory SIZE   memory of a node (with K, M or G), instead of what is available\n"
          "      --corrupt       spoil the results, to see the verification work\n"
          "      --model         built for SimGrid: simulate the processor's work, do not do it; "
          "nothing is verified\n"
          "      --list          the programs\n"
          "  -h, --help          this text\n"
          "  -v, --version       the version\n",
          out);
}

static int read_above_0(const char *text, uint64_t max, const char *option, uint64_t *number,
                        struct failure *failure)
{
    const char *end = number_read(text, number);

    if (end == NULL || *end != '\0' || *number < 1 || *number > max)
        return failure_set(failure, "'%s': %s is a number from 1 to %llu", text, option,
                           (unsigned long long)max);
    return 0;
}

static int set_model(struct options *options, struct failure *failure)
{
#ifdef SMPI_H /* the MPI of SimGrid */
    (void)failure;
    options->modelled = true;
    return 0;
#else
    (void)options;
    return failure_set(failure, "--model is for the build with SimGrid's smpicc, which simulates");
#endif
}

static int set(struct options *options, int letter, struct failure *failure)
{
    uint64_t number = 0;

    switch (letter) {
    case OPTION_ITERATIONS:
        if (read_above_0(optarg, INT_MAX, "--iterations", &number, failure) < 0)
            return -1;
        options->iterations = (int)number;
        return 0;
    case OPTION_MEMORY:
        return read_above_0(optarg, INT64_MAX, "--memory", &options->memory_bytes, failure);
    case OPTION_JSON:
        options->json = true;
        return 0;
    case OPTION_CORRUPT:
        options->corrupt = true;
        return 0;
    case OPTION_MODEL:
        return set_model(options, failure);
    case OPTION_LIST:
        options->action = OPTIONS_LIST;
        return 0;
    case 'v':
        options->action = OPTIONS_VERSION;
        return 0;
    default:
        options->action = OPTIONS_HELP;
        return 0;
    }
}

static int set_program(struct options *options, const char *name, struct failure *failure)
{
    options->program = program_find(name);
    if (options->program == NULL)
        return failure_set(failure, "no program '%s'; --list has them all", name);
    return 0;
}

static int set_class(struct options *options, const char *letter, struct failure *failure)
{
    options->class = letter[0] != '\0' && letter[1] == '\0' ? class_find(letter[0]) : CLASS_COUNT;
    if (options->class == CLASS_COUNT)
        return failure_set(failure, "no class '%s'; there are S, W, A, B, C and D", letter);
    return 0;
}

/* A link to this program may say what to run, as NPB names its programs: `ft`, `ft.A`, `ft.A.x`. */
static void take_link_name(struct options *options, const char *program)
{
    const char *slash = strrchr(program, '/');
    const char *start = slash == NULL ? program : slash + 1;
    char name[8] = {0};
    size_t length = strcspn(start, ".");

    if (length >= sizeof name)
        return;
    options->program = program_find(memcpy(name, start, length));
    if (options->program != NULL && start[length] == '.')
        options->class = class_find(start[length + 1]);
}

/* PROGRAM and CLASS, without those that the name of a link has said. */
static int take_names(struct options *options, int count, char **names, struct failure *failure)
{
    int at = 0;

    if (options->program == NULL && at < count && set_program(options, names[at++], failure) < 0)
        return -1;
    if (options->class == CLASS_COUNT && at < count && set_class(options, names[at++], failure) < 0)
        return -1;
    if (options->program == NULL || options->class == CLASS_COUNT)
        return failure_set(failure, "a program and a class are needed, like: ft A (see --help)");
    if (at < count)
        return failure_set(failure, "'%s' is one too many: a program and a class", names[at]);
    return 0;
}

int options_parse(struct options *options, int argc, char **argv, struct failure *failure)
{
    int letter;

    *options = (struct options){.class = CLASS_COUNT};
    take_link_name(options, argv[0]);
    optind = 0; /* start afresh: ranks may share a process */
    while ((letter = getopt_long(argc, argv, ":i:hv", known, NULL)) != -1) {
        if (letter == ':')
            return failure_set(failure, "%s needs a value; see --help", argv[optind - 1]);
        if (letter == '?')
            return failure_set(failure, "no option %s; --help has the options", argv[optind - 1]);
        if (set(options, letter, failure) < 0)
            return -1;
    }
    if (options->action != OPTIONS_RUN)
        return 0;
    return take_names(options, argc - optind, argv + optind, failure);
}
