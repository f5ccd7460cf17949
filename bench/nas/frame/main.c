/* rocelab-nas: the NAS Parallel Benchmarks. See ../README.md. */

#include "common/version.h"
#include "mpi/world.h"
#include "nas/frame/memory.h"
#include "nas/frame/options.h"
#include "nas/frame/report.h"

#include <stdlib.h>

#define EXIT_USAGE 2

static void print_list(void)
{
    static const char *const ranks[] = {
        [RANKS_ANY] = "any number of ranks",
        [RANKS_POWER_OF_TWO] = "1, 2, 4, 8, ... ranks",
        [RANKS_SQUARE] = "1, 4, 9, 16, ... ranks",
    };

    for (const struct program *const *each = programs; *each != NULL; each++)
        printf("%-4s %-24s %s\n", (*each)->name, ranks[(*each)->ranks], (*each)->title);
}

static void print_help(void)
{
    printf("rocelab-nas " ROCELAB_VERSION ": the NAS Parallel Benchmarks\n\n"
           "  mpirun -n 4 rocelab-nas PROGRAM CLASS [options]\n\n"
           "Classes: S, W, A, B, C, D. Programs:\n\n");
    print_list();
    printf("\nOptions:\n");
    options_describe(stdout);
    printf("\nExit status: 0 done and the results are right; 1 wrong results or a failure; "
           "2 wrong use.\n");
}

/* Whether the job can run here. Collective. */
static int prepare(struct run *run, const struct options *options, struct failure *failure)
{
    char need[16], have[16];
    uint64_t rank_bytes = memory_rank_bytes(run->comm, options->memory_bytes);

    if (program_plan(run->program, &run->job, &run->plan, failure) < 0)
        return -1;
    if (run->plan.rank_bytes > rank_bytes && !run->modelled)
        return failure_set(failure,
                           "%s class %c on %d ranks needs %s for each rank, and there are %s: "
                           "take more nodes, or a smaller class",
                           run->program->name, CLASS_LETTERS[run->job.class], run->ranks,
                           memory_text(run->plan.rank_bytes, need), memory_text(rank_bytes, have));
    if (options->iterations > run->plan.iterations)
        return failure_set(failure, "%s class %c has %d iterations, fewer than --iterations %d",
                           run->program->name, CLASS_LETTERS[run->job.class], run->plan.iterations,
                           options->iterations);
    run->iterations = options->iterations > 0 ? options->iterations : run->plan.iterations;
    return 0;
}

/* Returns the exit status. */
static int run_job(struct run *run, const struct options *options)
{
    if (run->rank == 0 && !options->json)
        report_heading(run);
    run_program(run);
    if (run->rank == 0) {
        if (options->json)
            report_json(run);
        else
            report_text(run);
        if (run->verification == VERIFICATION_FAIL)
            fprintf(stderr, "rocelab-nas: %s class %c gives wrong results\n", run->program->name,
                    CLASS_LETTERS[run->job.class]);
    }
    return run->verification == VERIFICATION_FAIL ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int run_under_mpi(const struct options *options, struct failure *failure)
{
    struct run run = {.program = options->program,
                      .comm = MPI_COMM_WORLD,
                      .corrupt = options->corrupt,
                      .modelled = options->modelled && options->program != NULL &&
                                  !options->program->needs_data};
    int status = EXIT_USAGE;
    bool wrong = failure->text[0] != '\0';

    MPI_Init(NULL, NULL);
    MPI_Comm_rank(run.comm, &run.rank);
    MPI_Comm_size(run.comm, &run.ranks);
    run.job = (struct job){options->class, run.ranks};
    if (!wrong && prepare(&run, options, failure) == 0) {
        run.nodes = world_nodes(run.comm);
        status = run_job(&run, options);
    } else if (run.rank == 0) {
        fprintf(stderr, "rocelab-nas: %s\n", failure->text);
    }
    MPI_Finalize();
    return status;
}

int main(int argc, char **argv)
{
    struct options options;
    struct failure failure = {.text = ""};
    int parsed = options_parse(&options, argc, argv, &failure);

    if (parsed == 0 && options.action == OPTIONS_HELP)
        print_help();
    else if (parsed == 0 && options.action == OPTIONS_VERSION)
        puts("rocelab-nas " ROCELAB_VERSION);
    else if (parsed == 0 && options.action == OPTIONS_LIST)
        print_list();
    else /* Wrong use is said once, by rank 0; only MPI knows which that is. */
        return run_under_mpi(&options, &failure);
    return EXIT_SUCCESS;
}
