/* What a set of timings says: order statistics and mean. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* All in the unit of the values that were summed up. */
struct stats {
    double min;
    double mean;
    double p50;
    double p99;
    double max;
};

/* Sorts `count` values, ascending. */
void stats_sort(uint64_t *values, size_t count);

/*
 * The smallest of `count` sorted values, at least one, that at least `percent` of them do not
 * exceed (nearest rank).
 */
double stats_percentile(const uint64_t *sorted, size_t count, double percent);

/*
 * Sums up `count` values, at least one, and sorts them in place. A percentile is the smallest value
 * that at least that share of the values does not exceed (nearest rank).
 */
struct stats stats_of(uint64_t *values, size_t count);
