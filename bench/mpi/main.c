/* rocelab-mpi: MPI benchmarks, called as OMB's and IMB's are. See mpi/README.md. */

#include "common/clock.h"
#include "common/version.h"
#include "mpi/registry.h"
#include "mpi/report.h"
#include "mpi/world.h"

#include <stdlib.h>
#include <string.h>

#define EXIT_USAGE 2
#define SELECTED_MAX 256

/* What is to run, in order. */
struct selection {
    struct {
        const struct group *group;
        const struct benchmark *benchmark;
    } entries[SELECTED_MAX];
    size_t count;
    bool by_group; /* some were not named one by one */
};

static int add(struct selection *selection, const struct group *group,
               const struct benchmark *benchmark, struct failure *failure)
{
    if (selection->count == SELECTED_MAX)
        return failure_set(failure, "at most %d benchmarks in one run", SELECTED_MAX);
    selection->entries[selection->count].group = group;
    selection->entries[selection->count++].benchmark = benchmark;
    return 0;
}

/* A benchmark, a group, or `all`. */
static int add_named(struct selection *selection, const char *name, struct failure *failure)
{
    const struct group *group;
    const struct benchmark *benchmark = registry_find(name, &group);
    bool found = false;

    if (benchmark != NULL)
        return add(selection, group, benchmark, failure);
    for (group = registry; group->name != NULL; group++) {
        if (strcmp(name, "all") != 0 && strcmp(name, group->name) != 0)
            continue;
        found = selection->by_group = true;
        for (benchmark = group->benchmarks; benchmark->name != NULL; benchmark++)
            if (add(selection, group, benchmark, failure) < 0)
                return -1;
    }
    return found ? 0 : failure_set(failure, "no benchmark '%s'; --list has them all", name);
}

/* A link to this program is named after the benchmark it runs, with or without OMB's prefix. */
static const char *link_name(const char *program)
{
    static const char prefix[] = "osu_";
    const char *slash = strrchr(program, '/');
    const char *name = slash == NULL ? program : slash + 1;

    return strncmp(name, prefix, sizeof prefix - 1) == 0 ? name + sizeof prefix - 1 : name;
}

static int select_all(struct selection *selection, const struct options *options,
                      const char *program, struct failure *failure)
{
    const struct group *group;
    const struct benchmark *linked = registry_find(link_name(program), &group);

    if (linked != NULL && add(selection, group, linked, failure) < 0)
        return -1;
    for (const char *const *name = options->names; *name != NULL; name++)
        if (add_named(selection, *name, failure) < 0)
            return -1;
    if (selection->count == 0)
        return failure_set(failure, "which benchmark? Name one, several, a group or all: --list");
    return 0;
}

static void print_list(void)
{
    static const char *const ranks[] = {
        [SHAPE_PAIR] = "2 ranks",
        [SHAPE_PAIRS] = "an even number of ranks",
        [SHAPE_ALL] = "2 or more ranks",
        [SHAPE_ANY] = "1 or more ranks",
    };

    for (const struct group *group = registry; group->name != NULL; group++)
        for (const struct benchmark *each = group->benchmarks; each->name != NULL; each++)
            printf("%-28s %-12s %s\n", each->name, group->name, ranks[each->shape]);
}

static void print_help(void)
{
    printf("rocelab-mpi " ROCELAB_VERSION ": MPI benchmarks, called as OMB's are\n\n"
           "  mpirun -n 2 rocelab-mpi latency [options]\n\n"
           "Benchmarks, groups of them, or all; several run one after the other:\n");
    for (const struct group *group = registry; group->name != NULL; group++) {
        int column = printf("  %-11s", group->name);

        for (const struct benchmark *each = group->benchmarks; each->name != NULL; each++) {
            if (column + (int)strlen(each->name) > 100)
                column = printf("\n%*s", 13, "") - 1;
            column += printf(" %s", each->name);
        }
        printf("\n");
    }
    printf("\nOptions, each for the benchmarks it makes sense for:\n");
    options_describe(stdout);
    printf(
        "\nExit status: 0 done and all data was right; 1 wrong data or a failure; 2 wrong use.\n");
}

/* Returns the exit status. */
static int run_all(struct run *run, const struct selection *selection)
{
    int status = EXIT_SUCCESS;

    for (size_t i = 0; i < selection->count; i++) {
        run->benchmark = selection->entries[i].benchmark;
        run->group = selection->entries[i].group->name;
        const char *problem = run_problem(run->benchmark, run->options, run->ranks);

        if (problem != NULL) {
            if (run->rank == 0)
                fprintf(stderr, "rocelab-mpi: %s %s (ranks here: %d)%s\n", run->benchmark->name,
                        problem, run->ranks, selection->by_group ? ": left out" : "");
            if (!selection->by_group)
                status = EXIT_USAGE;
        } else if (run_benchmark(run) < 0 && status == EXIT_SUCCESS) {
            status = EXIT_FAILURE;
        }
    }
    return status;
}

static int highest_thread_level(const struct selection *selection)
{
    int level = MPI_THREAD_SINGLE;

    for (size_t i = 0; i < selection->count; i++)
        if (selection->entries[i].benchmark->thread_level > level)
            level = selection->entries[i].benchmark->thread_level;
    return level;
}

static int run_under_mpi(const struct options *options, const struct selection *selection,
                         const struct failure *failure)
{
    struct run run = {.options = options, .comm = MPI_COMM_WORLD};
    int provided;
    int status;
    uint64_t start_ns = clock_now_ns(); /* MPI's own clock is not there yet */

    MPI_Init_thread(NULL, NULL, highest_thread_level(selection), &provided);
    run.init_ns = clock_now_ns() - start_ns;
    MPI_Comm_rank(run.comm, &run.rank);
    MPI_Comm_size(run.comm, &run.ranks);
    if (failure == NULL) {
        run.nodes = world_nodes(run.comm);
        status = run_all(&run, selection);
    } else {
        if (run.rank == 0)
            fprintf(stderr, "rocelab-mpi: %s\n", failure->text);
        status = EXIT_USAGE;
    }
    MPI_Finalize();
    return status;
}

int main(int argc, char **argv)
{
    struct selection selection = {.count = 0};
    struct options options;
    struct failure failure;
    int parsed = options_parse(&options, argc, argv, &failure);

    if (parsed == 0 && options.action == OPTIONS_HELP)
        print_help();
    else if (parsed == 0 && options.action == OPTIONS_VERSION)
        puts("rocelab-mpi " ROCELAB_VERSION);
    else if (parsed == 0 && options.action == OPTIONS_LIST)
        print_list();
    else {
        if (parsed == 0)
            parsed = select_all(&selection, &options, argv[0], &failure);
        /* Wrong use is said once, by rank 0; only MPI knows which that is. */
        return run_under_mpi(&options, &selection, parsed == 0 ? NULL : &failure);
    }
    return EXIT_SUCCESS;
}
