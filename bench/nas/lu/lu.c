/*
 * LU, named after the lower and upper triangles of the system of each time step: one relaxation
 * solves it well enough.
 */
#include "nas/lu/lu.h"

#include "nas/lu/pencil.h"
#include "nas/lu/relaxation.h"

#define TOLERANCE 1e-8

static const struct parameters {
    int points;
    int steps;
    double dt;
    double residual[COMPONENTS];
    double error[COMPONENTS];
    double integral;
} classes[CLASS_COUNT] = {
    [CLASS_S] = {12,
                 50,
                 0.5,
                 {1.6196343210976702e-02, 2.1976745164821318e-03, 1.5179927653399185e-03,
                  1.5029584435994323e-03, 3.4264073155896461e-02},
                 {6.4223319957960924e-04, 8.4144342047347926e-05, 5.8588269616485186e-05,
                  5.8474222595157350e-05, 1.3103347914111294e-03},
                 7.8418928865937083},
    [CLASS_W] = {33,
                 300,
                 1.5e-3,
                 {0.1236511638192e+02, 0.1317228477799e+01, 0.2550120713095e+01,
                  0.2326187750252e+01, 0.2826799444189e+02},
                 {0.4867877144216e+00, 0.5064652880982e-01, 0.9281818101960e-01,
                  0.8570126542733e-01, 0.1084277417792e+01},
                 0.1161399311023e+02},
    [CLASS_A] = {64,
                 250,
                 2.0,
                 {7.7902107606689367e+02, 6.3402765259692870e+01, 1.9499249727292479e+02,
                  1.7845301160418537e+02, 1.8384760349464247e+03},
                 {2.9964085685471943e+01, 2.8194576365003349e+00, 7.3473412698774742e+00,
                  6.7139225687777051e+00, 7.0715315688392578e+01},
                 2.6030925604886277e+01},
    [CLASS_B] = {102,
                 250,
                 2.0,
                 {3.5532672969982736e+03, 2.6214750795310692e+02, 8.8333721850952190e+02,
                  7.7812774739425265e+02, 7.3087969592545314e+03},
                 {1.1401176380212709e+02, 8.1098963655421574e+00, 2.8480597317698308e+01,
                  2.5905394567832939e+01, 2.6054907504857413e+02},
                 4.7887162703308227e+01},
    [CLASS_C] = {162,
                 250,
                 2.0,
                 {1.03766980323537846e+04, 8.92212458801008552e+02, 2.56238814582660871e+03,
                  2.19194343857831427e+03, 1.78078057261061185e+04},
                 {2.15986399716949279e+02, 1.55789559239863600e+01, 5.41318863077207766e+01,
                  4.82262643154045421e+01, 4.55902910043250358e+02},
                 6.66404553572181300e+01},
    [CLASS_D] = {408,
                 300,
                 1.0,
                 {0.4868417937025e+05, 0.4696371050071e+04, 0.1218114549776e+05,
                  0.1033801493461e+05, 0.7142398413817e+05},
                 {0.3752393004482e+03, 0.3084128893659e+02, 0.9434276905469e+02,
                  0.8230686681928e+02, 0.7002620636210e+03},
                 0.8334101392503e+02},
};

static int plan(const struct job *job, struct plan *plan, struct failure *failure)
{
    plan->iterations = classes[job->class].steps;
    return pencil_plan(job, classes[job->class].points, plan, failure);
}

/* How much a point counts along a direction in the sum over squares with that point as a corner. */
static double corner_weight(int point, const int range[2])
{
    if (point < range[0] || point > range[1])
        return 0;
    return point == range[0] || point == range[1] ? 1 : 2;
}

static double pressure_at(const struct block *block, ptrdiff_t at)
{
    double square = 0;

    for (int d = 0; d < DIRECTIONS; d++)
        square += block->u[MOMENTUM + d][at] * block->u[MOMENTUM + d][at];
    return C2 * (block->u[ENERGY][at] - 0.5 * square / block->u[DENSITY][at]);
}

/* The pressure over the surface of a box inside the cube, by the trapezoidal rule; of this rank's
 * points. */
static double surface_integral(const struct pencil *pencil)
{
    const struct block *block = &pencil->block;
    const int points = pencil->flow.points;
    const int ranges[DIRECTIONS][2] = {{1, points - 2}, {1, points - 3}, {2, points - 2}};
    const double side = 1.0 / (points - 1);
    double sum = 0;

    for (int k = 0; k < block->size[2]; k++)
        for (int j = 0; j < block->size[1]; j++)
            for (int i = 0; i < block->size[0]; i++) {
                const int point[] = {block->origin[0] + i, block->origin[1] + j, k};
                double weights[DIRECTIONS], weight = 0;

                for (int d = 0; d < DIRECTIONS; d++)
                    weights[d] = corner_weight(point[d], ranges[d]);
                for (int d = 0; d < DIRECTIONS; d++)
                    if (weights[d] == 1) /* on the two sides across this direction */
                        weight += weights[(d + 1) % DIRECTIONS] * weights[(d + 2) % DIRECTIONS];
                if (weight > 0)
                    sum += weight * pressure_at(block, block_at(block, i, j, k));
            }
    return 0.25 * sum * side * side;
}

static void check(struct pencil *pencil, const struct parameters *parameters)
{
    static const char *const residuals[] = {"residual 1", "residual 2", "residual 3", "residual 4",
                                            "residual 5"};
    static const char *const errors[] = {"error 1", "error 2", "error 3", "error 4", "error 5"};
    struct run *run = pencil->run;
    double residual_sums[COMPONENTS] = {0}, residual[COMPONENTS];
    double error_sums[COMPONENTS] = {0}, error[COMPONENTS];
    double part = surface_integral(pencil), integral;

    block_add_residuals(&pencil->block, residual_sums);
    block_add_errors(&pencil->block, &pencil->flow, error_sums);
    flow_norms(run, &pencil->flow, residual_sums, residual);
    flow_norms(run, &pencil->flow, error_sums, error);
    IN_MPI(run, MPI_Allreduce(&part, &integral, 1, MPI_DOUBLE, MPI_SUM, run->comm));
    for (int m = 0; m < COMPONENTS; m++)
        run_check(run, residuals[m], residual[m] / pencil->flow.dt, parameters->residual[m],
                  TOLERANCE);
    for (int m = 0; m < COMPONENTS; m++)
        run_check(run, errors[m], error[m], parameters->error[m], TOLERANCE);
    run_check(run, "surface integral", integral, parameters->integral, TOLERANCE);
}

static void start(struct pencil *pencil)
{
    block_initialize(&pencil->block, &pencil->flow);
    pencil_right_hand_side(pencil);
}

static void step(struct pencil *pencil)
{
    lu_relax(pencil);
    pencil_right_hand_side(pencil);
}

static void run(struct run *run)
{
    const struct parameters *parameters = &classes[run->job.class];
    const double points = parameters->points;
    struct pencil pencil;

    pencil_make(&pencil, run, flow_of(parameters->points, parameters->dt));
    start(&pencil);
    step(&pencil); /* warm-up */
    start(&pencil);

    run_start(run);
    while (run_next(run))
        step(&pencil);
    run_stop(run);

    run->operations =
        parameters->steps * (points * (points * (1984.77 * points - 10923.3) + 27770.9) - 144010.0);
    check(&pencil, parameters);
}

const struct program program_lu = {
    .name = "lu",
    .title = "flow, over-relaxation",
    .operation = "floating point",
    .ranks = RANKS_ANY,
    .plan = plan,
    .run = run,
};
