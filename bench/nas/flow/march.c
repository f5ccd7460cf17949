#include "nas/flow/march.h"

int march_plan(const struct march *march, const struct job *job, struct plan *plan,
               struct failure *failure)
{
    const struct march_class *class = &march->classes[job->class];

    plan->iterations = class->steps;
    return partition_plan(job, class->points, march->method, plan, failure);
}

static void step(const struct march *march, struct partition *partition)
{
    partition_right_hand_side(partition, march->finish);
    for (int direction = 0; direction < DIRECTIONS; direction++)
        sweep(partition, march->method, direction);
}

void march_run(const struct march *march, struct run *run)
{
    const struct march_class *class = &march->classes[run->job.class];
    struct partition partition;

    partition_make(&partition, run, flow_of(class->points, class->dt), march->method);
    partition_initialize(&partition);
    step(march, &partition); /* warm-up */
    partition_initialize(&partition);

    run_start(run);
    while (run_next(run))
        step(march, &partition);
    run_stop(run);

    run->operations = class->steps * march->operations(class->points);
    partition_check(&partition, &class->norms);
}
