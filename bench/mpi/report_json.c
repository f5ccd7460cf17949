#include "mpi/report_json.h"

#include "common/version.h"
#include "mpi/report.h"
#include "mpi/world.h"

#include <math.h>
#include <string.h>

/* The options that this benchmark depends on; their letters are in its entry. */
static void write_parameters(FILE *out, const struct run *run)
{
    const char *letters = run->benchmark->parameters;
    const char *separator = "";

    for (; letters != NULL && *letters != '\0'; letters++, separator = ", ") {
        fputs(separator, out);
        switch (*letters) {
        case 'w':
            fprintf(out, "\"window\": %d", run->window);
            break;
        case 'c':
            fprintf(out, "\"test_calls\": %d", run->options->test_calls);
            break;
        case 'n':
            fprintf(out, "\"neighbours\": %d",
                    2 * run->options->grid_dimensions * run->options->grid_radius);
            break;
        case 'o':
            fprintf(out, "\"window_type\": \"%s\"",
                    options_window_types[run->options->window_type]);
            break;
        case 's':
            fprintf(out, "\"sync\": \"%s\"", options_syncs[run->sync]);
            break;
        case 't':
        case 'f':
            fprintf(out, "\"%s\": \"%d:%d\"", *letters == 't' ? "threads" : "processes",
                    run->options->threads_send, run->options->threads_receive);
            break;
        case 'p':
            fprintf(out, "\"pairs\": %d", run->pairs);
            break;
        }
    }
}

static void write_number(FILE *out, double value)
{
    /* JSON has neither infinity nor NaN. */
    if (isfinite(value))
        fprintf(out, "%.9g", value);
    else
        fputs("null", out);
}

static void write_metrics(FILE *out, const struct sample *sample)
{
    const char *separator = "";

    for (int i = 0; i < METRIC_COUNT; i++) {
        const char *key = metric_key((enum metric)i);

        if (key == NULL || isnan(sample->values[i]))
            continue;
        fprintf(out, "%s\"%s\": ", separator, key);
        write_number(out, sample->values[i]);
        separator = ", ";
    }
}

static void write_spread(FILE *out, const struct spread *spread, const double *percentiles,
                         size_t percentile_count)
{
    fprintf(out, ", \"spread\": {\"metric\": \"%s\", \"samples\": %zu, \"min\": ",
            metric_key(spread->metric), spread->count);
    write_number(out, spread_percentile(spread, 0));
    for (size_t i = 0; i < percentile_count; i++) {
        fprintf(out, ", \"p%g\": ", percentiles[i]);
        write_number(out, spread_percentile(spread, percentiles[i]));
    }
    fputs(", \"max\": ", out);
    write_number(out, spread_percentile(spread, 100));
    fputs("}", out);
}

void report_json(FILE *out, const struct run *run, const struct sample *sample,
                 const double *percentiles, size_t percentile_count)
{
    static const char *const validations[] = {"pass", "fail", "off", "none"};
    bool valid = sample->validation != VALIDATION_FAIL;

    fputs("{\"format\": 1, \"suite\": \"rocelab-mpi " ROCELAB_VERSION "\", \"mpi\": ", out);
    world_write_library(out);
    fprintf(out,
            ", \"group\": \"%s\", \"benchmark\": \"%s\", \"ranks\": %d, \"nodes\": %d, "
            "\"datatype\": \"%s\", \"parameters\": {",
            run->group, run->benchmark->name, run->ranks, run->nodes, run->datatype->name);
    write_parameters(out, run);
    fprintf(out,
            "}, \"size_bytes\": %zu, \"iterations\": %llu, \"warmup_iterations\": %llu, "
            "\"validation\": \"%s\", \"wrong_bytes\": %llu, \"metrics\": {",
            run->size_bytes, (unsigned long long)run->iterations, (unsigned long long)run->warmup,
            validations[sample->validation], (unsigned long long)sample->wrong_bytes);
    if (valid)
        write_metrics(out, sample);
    fputs("}", out);
    if (valid && sample->spread.count > 0)
        write_spread(out, &sample->spread, percentiles, percentile_count);
    fputs("}\n", out);
}
