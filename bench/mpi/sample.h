/* One result: a benchmark at one size. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers a benchmark may give; sample.c has their names. */
enum metric {
    METRIC_LATENCY,
    METRIC_LATENCY_MIN,
    METRIC_LATENCY_MAX,
    METRIC_BANDWIDTH,
    METRIC_MESSAGE_RATE,
    METRIC_PAIRS_BANDWIDTH, /* the same, as mbw_mr heads it */
    METRIC_OVERALL,
    METRIC_COMPUTE,
    METRIC_PURE,
    METRIC_OVERLAP,
    METRIC_T,
    METRIC_T_MIN,
    METRIC_T_MAX,
    METRIC_T_AVG,
    METRIC_IMB_BANDWIDTH,
    METRIC_IMB_MESSAGE_RATE,
    METRIC_PER_RANK,
    METRIC_PER_NODE,
    METRIC_TOTAL,
    METRIC_INIT,
    METRIC_INIT_MIN,
    METRIC_INIT_MAX,
    METRIC_CONTACT,
    METRIC_CONTACT_MAX,
    METRIC_ITERATIONS, /* in text only: JSON has them in every line */
    METRIC_COUNT,
    METRIC_END = METRIC_COUNT,
};

/* In the order of printing. `full` ones are printed with -f alone. */
struct column {
    enum metric metric;
    bool full;
};

/* The key in JSON, with its unit; NULL: not in JSON. */
const char *metric_key(enum metric metric);

/* The heading of its column, as OMB has it. */
const char *metric_heading(enum metric metric);

enum validation { VALIDATION_PASS, VALIDATION_FAIL, VALIDATION_OFF, VALIDATION_NONE };

/* Iterations one by one. A time t is worth scale * t, or scale / t if `is_rate`. */
struct spread {
    enum metric metric;
    uint64_t *times_ns; /* sorted, ascending */
    size_t count;       /* 0: there is none */
    double scale;
    bool is_rate;
};

struct sample {
    double values[METRIC_COUNT]; /* NaN: not measured */
    enum validation validation;
    uint64_t wrong_bytes;
    struct spread spread;
};

/* A sample that has no values yet. */
void sample_clear(struct sample *sample);

/* The value of the first metric that `percent` of the iterations do not exceed (nearest rank); 0 is
 * the smallest. */
double spread_percentile(const struct spread *spread, double percent);
