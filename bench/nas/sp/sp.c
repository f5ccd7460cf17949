/*
 * SP, "scalar pentadiagonal": each time step splits the implicit system into one along x, one along
 * y and one along z, and changes variables in between, so that each is five independent systems.
 */
#include "nas/sp/sp.h"

#include "nas/flow/sweep.h"
#include "nas/sp/diagonals.h"

static const struct parameters {
    int points;
    int steps;
    double dt;
    struct norms norms;
} classes[CLASS_COUNT] = {
    [CLASS_S] = {12,
                 100,
                 0.015,
                 {{2.7470315451339479e-02, 1.0360746705285417e-02, 1.6235745065095532e-02,
                   1.5840557224455615e-02, 3.4849040609362460e-02},
                  {2.7289258557377227e-05, 1.0364446640837285e-05, 1.6154798287166471e-05,
                   1.5750704994480102e-05, 3.4177666183390531e-05}}},
    [CLASS_W] = {36,
                 400,
                 0.0015,
                 {{0.1893253733584e-02, 0.1717075447775e-03, 0.2778153350936e-03,
                   0.2887475409984e-03, 0.3143611161242e-02},
                  {0.7542088599534e-04, 0.6512852253086e-05, 0.1049092285688e-04,
                   0.1128838671535e-04, 0.1212845639773e-03}}},
    [CLASS_A] = {64,
                 400,
                 0.0015,
                 {{2.4799822399300195, 1.1276337964368832, 1.5028977888770491, 1.4217816211695179,
                   2.1292113035138280},
                  {1.0900140297820550e-04, 3.7343951769282091e-05, 5.0092785406541633e-05,
                   4.7671093939528255e-05, 1.3621613399213001e-04}}},
    [CLASS_B] = {102,
                 400,
                 0.001,
                 {{0.6903293579998e+02, 0.3095134488084e+02, 0.4103336647017e+02,
                   0.3864769009604e+02, 0.5643482272596e+02},
                  {0.9810006190188e-02, 0.1022827905670e-02, 0.1720597911692e-02,
                   0.1694479428231e-02, 0.1847456263981e-01}}},
    [CLASS_C] = {162,
                 400,
                 0.00067,
                 {{0.5881691581829e+03, 0.2454417603569e+03, 0.3293829191851e+03,
                   0.3081924971891e+03, 0.4597223799176e+03},
                  {0.2598120500183e+00, 0.2590888922315e-01, 0.5132886416320e-01,
                   0.4806073419454e-01, 0.5483377491301e+00}}},
    [CLASS_D] = {408,
                 500,
                 0.0003,
                 {{0.1044696216887e+05, 0.3204427762578e+04, 0.4648680733032e+04,
                   0.4238923283697e+04, 0.7588412036136e+04},
                  {0.5089471423669e+01, 0.5323514855894e+00, 0.1187051008971e+01,
                   0.1083734951938e+01, 0.1164108338568e+02}}},
};

static int plan(const struct job *job, struct plan *plan, struct failure *failure)
{
    plan->iterations = classes[job->class].steps;
    return partition_plan(job, classes[job->class].points, &sp_method, plan, failure);
}

static void step(struct partition *partition)
{
    partition_right_hand_side(partition, sp_to_characteristic);
    for (int direction = 0; direction < DIRECTIONS; direction++)
        sweep(partition, &sp_method, direction);
}

static void run(struct run *run)
{
    const struct parameters *parameters = &classes[run->job.class];
    const double points = parameters->points;
    struct partition partition;

    partition_make(&partition, run, flow_of(parameters->points, parameters->dt), &sp_method);
    partition_initialize(&partition);
    step(&partition); /* warm-up */
    partition_initialize(&partition);

    run_start(run);
    while (run_next(run))
        step(&partition);
    run_stop(run);

    run->operations =
        parameters->steps * (points * (points * (881.174 * points - 4683.91) + 11484.5) - 19272.4);
    partition_check(&partition, &parameters->norms);
}

const struct program program_sp = {
    .name = "sp",
    .title = "flow, scalar pentadiagonal",
    .operation = "floating point",
    .ranks = RANKS_SQUARE,
    .plan = plan,
    .run = run,
};
