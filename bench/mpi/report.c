#include "mpi/report.h"

#include "common/stats.h"
#include "common/version.h"
#include "mpi/report_imb.h"
#include "mpi/report_json.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SIZE_FIELD 10
#define VALUE_FIELD 20

static const double usual_percentiles[] = {50, 90, 99};

#define USUAL_COUNT (sizeof usual_percentiles / sizeof *usual_percentiles)

static bool has_sizes(const struct run *run)
{
    return run->benchmark->size_max_bytes > 0;
}

static bool shown(const struct run *run, const struct column *column)
{
    if (column->metric == METRIC_MESSAGE_RATE && !run->options->message_rate)
        return false;
    return !column->full || run->options->full;
}

/* What -z asked for, or the usual ones. */
static const double *percentiles_of(const struct options *options, size_t *count)
{
    *count = options->percentile_count > 0 ? options->percentile_count : USUAL_COUNT;
    return options->percentile_count > 0 ? options->percentiles : usual_percentiles;
}

static void heading_names(const struct run *run)
{
    const struct column *columns = run->benchmark->method->columns;
    size_t percentile_count;
    const double *percentiles = percentiles_of(run->options, &percentile_count);

    printf("%-*s", has_sizes(run) ? SIZE_FIELD : 2, has_sizes(run) ? "# Size" : "#");
    for (size_t i = 0; columns[i].metric != METRIC_END; i++)
        if (shown(run, &columns[i]))
            printf("%*s", i == 0 && !has_sizes(run) ? 0 : VALUE_FIELD,
                   metric_heading(columns[i].metric));
    for (size_t i = 0; run->options->tail && i < percentile_count; i++) {
        char name[32];

        snprintf(name, sizeof name, "P%g Tail %s", percentiles[i],
                 columns[0].metric == METRIC_BANDWIDTH ||
                         columns[0].metric == METRIC_PAIRS_BANDWIDTH
                     ? "BW(MB/s)"
                     : "Lat(us)");
        printf("%*s", VALUE_FIELD, name);
    }
    if (run->options->validate_each && run->benchmark->content != NULL)
        printf("%*s", VALUE_FIELD, "Validation");
    printf("\n");
}

static bool depends_on(const struct benchmark *benchmark, char letter)
{
    return benchmark->parameters != NULL && strchr(benchmark->parameters, letter) != NULL;
}

static void print_parameters(const struct run *run)
{
    const struct benchmark *benchmark = run->benchmark;

    if (depends_on(benchmark, 'p'))
        printf("# [ pairs: %d ]", run->pairs);
    if (depends_on(benchmark, 'p') && depends_on(benchmark, 'w'))
        printf(" [ window size: %d ]", run->window);
    if (depends_on(benchmark, 'p'))
        printf("\n");
    if (depends_on(benchmark, 'o'))
        printf("# Window creation: MPI_Win_%s\n", options_window_types[run->options->window_type]);
    if (depends_on(benchmark, 's'))
        printf("# Synchronization: %s\n", options_syncs[run->sync]);
}

void report_heading(const struct run *run)
{
    const struct benchmark *benchmark = run->benchmark;
    char datatype[32];

    if (run->options->json)
        return;
    if (benchmark->method->imb) {
        report_imb_heading(run);
        return;
    }
    printf("\n# rocelab MPI %s Test v" ROCELAB_VERSION "\n", benchmark->title);
    print_parameters(run);
    if (has_sizes(run)) {
        snprintf(datatype, sizeof datatype, "%s", run->datatype->name);
        for (char *at = datatype; *at != '\0'; at++)
            *at = (char)toupper((unsigned char)*at);
        printf("# Datatype: %s.\n", datatype);
    }
    heading_names(run);
    fflush(stdout);
}

/* A wrong sample has no numbers. */
static void print_value(bool valid, double value, int decimals)
{
    if (valid && !isnan(value))
        printf("%*.*f", VALUE_FIELD, decimals, value);
    else
        printf("%*s", VALUE_FIELD, "-");
}

static void print_line(const struct run *run, const struct sample *sample,
                       const double *percentiles, size_t percentile_count)
{
    const struct column *columns = run->benchmark->method->columns;
    bool valid = sample->validation != VALIDATION_FAIL;

    if (has_sizes(run))
        printf("%-*zu", SIZE_FIELD, run->size_bytes);
    for (size_t i = 0; columns[i].metric != METRIC_END; i++) {
        if (!shown(run, &columns[i]))
            continue;
        if (columns[i].metric == METRIC_ITERATIONS)
            printf("%*llu", VALUE_FIELD, (unsigned long long)run->iterations);
        else
            print_value(valid, sample->values[columns[i].metric], 2);
    }
    for (size_t i = 0; run->options->tail && i < percentile_count; i++)
        print_value(
            valid && sample->spread.count > 0,
            sample->spread.count > 0 ? spread_percentile(&sample->spread, percentiles[i]) : NAN, 2);
    if (run->options->validate_each && run->benchmark->content != NULL)
        printf("%*s", VALUE_FIELD, valid ? "Pass" : "Fail");
    printf("\n");
}

void report_sample(const struct run *run, struct sample *sample)
{
    size_t percentile_count;
    const double *percentiles = percentiles_of(run->options, &percentile_count);

    if (sample->spread.count > 0)
        stats_sort(sample->spread.times_ns, sample->spread.count);
    if (run->options->json)
        report_json(stdout, run, sample, percentiles, percentile_count);
    else if (run->benchmark->method->imb)
        report_imb_line(run, sample);
    else
        print_line(run, sample, percentiles, percentile_count);
    fflush(stdout);
    if (sample->validation == VALIDATION_FAIL)
        fprintf(stderr, "rocelab-mpi: %s, %zu bytes: %llu received bytes are wrong\n",
                run->benchmark->name, run->size_bytes, (unsigned long long)sample->wrong_bytes);
}
