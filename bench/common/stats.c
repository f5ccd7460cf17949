#include "common/stats.h"

#include <stdlib.h>

static int ascending(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

static double percentile(const uint64_t *sorted, size_t count, size_t percent)
{
    size_t rank = (count * percent + 99) / 100;

    return (double)sorted[rank - 1];
}

struct stats stats_of(uint64_t *values, size_t count)
{
    double sum = 0;

    qsort(values, count, sizeof *values, ascending);
    for (size_t i = 0; i < count; i++)
        sum += (double)values[i];
    return (struct stats){
        .min = (double)values[0],
        .mean = sum / (double)count,
        .p50 = percentile(values, count, 50),
        .p99 = percentile(values, count, 99),
        .max = (double)values[count - 1],
    };
}
