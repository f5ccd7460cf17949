#include "mpi/sample.h"

#include "common/stats.h"

#include <math.h>
#include <stddef.h>

static const struct {
    const char *key;
    const char *heading;
} names[METRIC_COUNT] = {
    [METRIC_LATENCY] = {"latency_us", "Avg Latency(us)"},
    [METRIC_LATENCY_MIN] = {"latency_min_us", "Min Latency(us)"},
    [METRIC_LATENCY_MAX] = {"latency_max_us", "Max Latency(us)"},
    [METRIC_BANDWIDTH] = {"bandwidth_mb_per_s", "Bandwidth (MB/s)"},
    [METRIC_MESSAGE_RATE] = {"message_rate_per_s", "Messages/s"},
    [METRIC_PAIRS_BANDWIDTH] = {"bandwidth_mb_per_s", "MB/s"},
    [METRIC_OVERALL] = {"overall_us", "Overall(us)"},
    [METRIC_COMPUTE] = {"compute_us", "Compute(us)"},
    [METRIC_PURE] = {"pure_us", "Pure Comm.(us)"},
    [METRIC_OVERLAP] = {"overlap_percent", "Overlap(%)"},
    [METRIC_T] = {"t_us", "t[usec]"},
    [METRIC_T_MIN] = {"t_min_us", "t_min[usec]"},
    [METRIC_T_MAX] = {"t_max_us", "t_max[usec]"},
    [METRIC_T_AVG] = {"t_avg_us", "t_avg[usec]"},
    [METRIC_IMB_BANDWIDTH] = {"bandwidth_mb_per_s", "Mbytes/sec"},
    [METRIC_IMB_MESSAGE_RATE] = {"message_rate_per_s", "Msg/sec"},
    [METRIC_PER_RANK] = {"per_rank_mb_per_s", "Rank (MB/s)"},
    [METRIC_PER_NODE] = {"per_node_mb_per_s", "Node (MB/s)"},
    [METRIC_TOTAL] = {"total_mb_per_s", "Total (MB/s)"},
    [METRIC_INIT] = {"init_us", "Avg Init(us)"},
    [METRIC_INIT_MIN] = {"init_min_us", "Min Init(us)"},
    [METRIC_INIT_MAX] = {"init_max_us", "Max Init(us)"},
    [METRIC_CONTACT] = {"contact_us", "Avg Contact(us)"},
    [METRIC_CONTACT_MAX] = {"contact_max_us", "Max Contact(us)"},
    [METRIC_ITERATIONS] = {NULL, "Iterations"},
};

const char *metric_key(enum metric metric)
{
    return names[metric].key;
}

const char *metric_heading(enum metric metric)
{
    return names[metric].heading;
}

void sample_clear(struct sample *sample)
{
    *sample = (struct sample){.validation = VALIDATION_NONE};
    for (int i = 0; i < METRIC_COUNT; i++)
        sample->values[i] = NAN;
}

double spread_percentile(const struct spread *spread, double percent)
{
    /* The fastest iteration has the highest rate. */
    double of_times = spread->is_rate ? 100 - percent : percent;
    double time_ns = stats_percentile(spread->times_ns, spread->count, of_times);

    return spread->is_rate ? spread->scale / time_ns : spread->scale * time_ns;
}
