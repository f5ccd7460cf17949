#include "nas/frame/report.h"

#include "common/version.h"
#include "mpi/world.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define PERCENT 100

/* "FT" */
static const char *upper_name(const struct run *run, char name[8])
{
    size_t i = 0;

    for (; i < 7 && run->program->name[i] != '\0'; i++)
        name[i] = (char)toupper((unsigned char)run->program->name[i]);
    name[i] = '\0';
    return name;
}

/* Millions of operations a second, of all ranks. */
static double mops(const struct run *run)
{
    return run->time_s > 0 ? run->operations / run->time_s / 1e6 : 0;
}

void report_heading(const struct run *run)
{
    char name[8];

    printf("\n\n NAS Parallel Benchmarks (rocelab-nas " ROCELAB_VERSION ") -- %s Benchmark\n\n",
           upper_name(run, name));
    printf(" Size: %s  (class %c)\n", run->plan.size, CLASS_LETTERS[run->job.class]);
    printf(" Iterations: %d\n", run->iterations);
    printf(" Number of processes: %d\n\n", run->ranks);
    fflush(stdout);
}

static void print_checks(const struct run *run)
{
    if (run->verification == VERIFICATION_OFF) {
        printf(
            " Verification not performed: %d of %d iterations were run, and the time is scaled\n",
            run->iterations, run->plan.iterations);
        return;
    }
    printf(" Verification %s for class %c (result, published, error):\n",
           run->verification == VERIFICATION_PASS ? "successful" : "FAILED",
           CLASS_LETTERS[run->job.class]);
    for (int i = 0; i < run->check_count; i++) {
        const struct check *check = &run->checks[i];

        printf(" %s %-16s %20.13E %20.13E %10.2E\n", check->passed ? "       " : "FAILURE",
               check->name, check->value, check->expected, check->error);
    }
}

static void print_text(const char *label, const char *value)
{
    printf(" %-15s = %24s\n", label, value);
}

static void print_integer(const char *label, int value)
{
    printf(" %-15s = %24d\n", label, value);
}

static void print_decimal(const char *label, double value)
{
    printf(" %-15s = %24.2f\n", label, value);
}

void report_text(const struct run *run)
{
    static const char *const verifications[] = {"SUCCESSFUL", "UNSUCCESSFUL", "NOT PERFORMED"};
    char name[8];

    print_checks(run);
    printf("\n\n %s Benchmark Completed.\n", upper_name(run, name));
    print_text("Class", (char[]){CLASS_LETTERS[run->job.class], '\0'});
    print_text("Size", run->plan.size);
    print_integer("Iterations", run->iterations);
    /* NPB has two decimals; here class S takes less than that. */
    printf(" %-15s = %24.6f\n", "Time in seconds", run->time_s);
    print_integer("Total processes", run->ranks);
    print_decimal("Mop/s total", mops(run));
    print_decimal("Mop/s/process", mops(run) / run->ranks);
    print_decimal("Share in MPI %", run->mpi_share * PERCENT);
    print_text("Operation type", run->program->operation);
    print_text("Verification", verifications[run->verification]);
    print_text("Version", "rocelab-nas " ROCELAB_VERSION);
    printf("\n");
}

static void write_number(const char *before, double value)
{
    /* JSON has neither infinity nor NaN. */
    if (isfinite(value))
        printf("%s%.15g", before, value);
    else
        printf("%snull", before);
}

void report_json(const struct run *run)
{
    static const char *const verifications[] = {"pass", "fail", "off"};

    printf("{\"format\": 1, \"suite\": \"rocelab-nas " ROCELAB_VERSION "\", \"mpi\": ");
    world_write_library(stdout);
    printf(", \"benchmark\": \"%s\", \"class\": \"%c\", \"size\": \"%s\", \"ranks\": %d, "
           "\"nodes\": %d, \"iterations\": %d, \"iterations_of_class\": %d, \"modelled\": %s, "
           "\"verification\": \"%s\"",
           run->program->name, CLASS_LETTERS[run->job.class], run->plan.size, run->ranks,
           run->nodes, run->iterations, run->plan.iterations, run->modelled ? "true" : "false",
           verifications[run->verification]);
    printf(", \"checks\": [");
    for (int i = 0; i < run->check_count; i++) {
        const struct check *check = &run->checks[i];

        printf("%s{\"name\": \"%s\", ", i == 0 ? "" : ", ", check->name);
        write_number("\"value\": ", check->value);
        write_number(", \"expected\": ", check->expected);
        write_number(", \"error\": ", check->error);
        printf(", \"passed\": %s}", check->passed ? "true" : "false");
    }
    /* A wrong result has no speed. */
    printf("], \"metrics\": {");
    if (run->verification != VERIFICATION_FAIL) {
        write_number("\"time_s\": ", run->time_s);
        write_number(", \"measured_s\": ", run->measured_s);
        write_number(", \"mops\": ", mops(run));
        write_number(", \"mpi_percent\": ", run->mpi_share * PERCENT);
        write_number(", \"mpi_percent_max\": ", run->mpi_share_max * PERCENT);
    }
    printf("}}\n");
}
