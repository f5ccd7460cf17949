/*
 * BT, "block tridiagonal": each time step splits the implicit system into one along x, one along y
 * and one along z, of 5 x 5 blocks.
 */
#include "nas/bt/bt.h"

#include "nas/bt/blocks.h"
#include "nas/flow/sweep.h"

static const struct parameters {
    int points;
    int steps;
    double dt;
    struct norms norms;
} classes[CLASS_COUNT] = {
    [CLASS_S] = {12,
                 60,
                 0.010,
                 {{1.7034283709541311e-01, 1.2975252070034097e-02, 3.2527926989486055e-02,
                   2.6436421275166801e-02, 1.9211784131744430e-01},
                  {4.9976913345811579e-04, 4.5195666782961927e-05, 7.3973765172921357e-05,
                   7.3821238632439731e-05, 8.9269630987491446e-04}}},
    [CLASS_W] = {24,
                 200,
                 0.0008,
                 {{0.1125590409344e+03, 0.1180007595731e+02, 0.2710329767846e+02,
                   0.2469174937669e+02, 0.2638427874317e+03},
                  {0.4419655736008e+01, 0.4638531260002e+00, 0.1011551749967e+01,
                   0.9235878729944e+00, 0.1018045837718e+02}}},
    [CLASS_A] = {64,
                 200,
                 0.0008,
                 {{1.0806346714637264e+02, 1.1319730901220813e+01, 2.5974354511582465e+01,
                   2.3665622544678910e+01, 2.5278963211748344e+02},
                  {4.2348416040525025e+00, 4.4390282496995698e-01, 9.6692480136345650e-01,
                   8.8302063039765474e-01, 9.7379901770829278e+00}}},
    [CLASS_B] = {102,
                 200,
                 0.0003,
                 {{1.4233597229287254e+03, 9.9330522590150238e+01, 3.5646025644535285e+02,
                   3.2485447959084092e+02, 3.2707541254659363e+03},
                  {5.2969847140936856e+01, 4.4632896115670668e+00, 1.3122573342210174e+01,
                   1.2006925323559144e+01, 1.2459576151035986e+02}}},
    [CLASS_C] = {162,
                 200,
                 0.0001,
                 {{0.62398116551764615e+04, 0.50793239190423964e+03, 0.15423530093013596e+04,
                   0.13302387929291190e+04, 0.11604087428436455e+05},
                  {0.16462008369091265e+03, 0.11497107903824313e+02, 0.41207446207461508e+02,
                   0.37087651059694167e+02, 0.36211053051841265e+03}}},
    [CLASS_D] = {408,
                 250,
                 0.00002,
                 {{0.2533188551738e+05, 0.2346393716980e+04, 0.6294554366904e+04,
                   0.5352565376030e+04, 0.3905864038618e+05},
                  {0.3100009377557e+03, 0.2424086324913e+02, 0.7782212022645e+02,
                   0.6835623860116e+02, 0.6065737200368e+03}}},
};

static int plan(const struct job *job, struct plan *plan, struct failure *failure)
{
    plan->iterations = classes[job->class].steps;
    return partition_plan(job, classes[job->class].points, &bt_method, plan, failure);
}

static void step(struct partition *partition)
{
    partition_right_hand_side(partition, NULL);
    for (int direction = 0; direction < DIRECTIONS; direction++)
        sweep(partition, &bt_method, direction);
}

static void run(struct run *run)
{
    const struct parameters *parameters = &classes[run->job.class];
    const double points = parameters->points;
    struct partition partition;

    partition_make(&partition, run, flow_of(parameters->points, parameters->dt), &bt_method);
    partition_initialize(&partition);
    step(&partition); /* warm-up */
    partition_initialize(&partition);

    run_start(run);
    while (run_next(run))
        step(&partition);
    run_stop(run);

    run->operations =
        parameters->steps * points * (3478.8 * points * points - 17655.7 * points + 28023.7);
    partition_check(&partition, &parameters->norms);
}

const struct program program_bt = {
    .name = "bt",
    .title = "flow, block-tridiagonal",
    .operation = "floating point",
    .ranks = RANKS_SQUARE,
    .plan = plan,
    .run = run,
};
