#include "common/stats.h"

#include <stdlib.h>

static int ascending(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

void stats_sort(uint64_t *values, size_t count)
{
    qsort(values, count, sizeof *values, ascending);
}

double stats_percentile(const uint64_t *sorted, size_t count, double percent)
{
    double share = (double)count * percent / 100;
    size_t rank = (size_t)share;

    rank += (double)rank < share;
    return (double)sorted[rank == 0 ? 0 : rank - 1];
}

struct stats stats_of(uint64_t *values, size_t count)
{
    double sum = 0;

    stats_sort(values, count);
    for (size_t i = 0; i < count; i++)
        sum += (double)values[i];
    return (struct stats){
        .min = (double)values[0],
        .mean = sum / (double)count,
        .p50 = stats_percentile(values, count, 50),
        .p99 = stats_percentile(values, count, 99),
        .max = (double)values[count - 1],
    };
}
