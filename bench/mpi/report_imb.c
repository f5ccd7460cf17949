#include "mpi/report_imb.h"

#include <stdio.h>

#define FIELD 13

static const char rule[] = "#----------------------------------------------------------------\n";

static bool has_verdict(const struct run *run)
{
    return run->options->validate_each;
}

void report_imb_heading(const struct run *run)
{
    const struct column *columns = run->benchmark->method->columns;

    printf("\n%s# Benchmarking %s\n# #processes = %d\n%s", rule, run->benchmark->title, run->ranks,
           rule);
    printf("%*s%*s", FIELD, "#bytes", FIELD, "#repetitions");
    for (; columns->metric != METRIC_END; columns++)
        printf("%*s", FIELD, metric_heading(columns->metric));
    printf("%s\n", has_verdict(run) ? "      defects" : "");
}

void report_imb_line(const struct run *run, const struct sample *sample)
{
    const struct column *columns = run->benchmark->method->columns;

    printf("%*zu%*llu", FIELD, run->size_bytes, FIELD, (unsigned long long)run->iterations);
    for (; columns->metric != METRIC_END; columns++)
        if (sample->validation == VALIDATION_FAIL)
            printf("%*s", FIELD, "-");
        else
            printf("%*.2f", FIELD, sample->values[columns->metric]);
    if (has_verdict(run))
        printf("%*llu", FIELD, (unsigned long long)sample->wrong_bytes);
    printf("\n");
}
