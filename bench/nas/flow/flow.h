/*
 * The flow that BT, SP and LU compute: five equations of Navier-Stokes kind in the unit cube, with
 * a forcing that makes a known polynomial their steady solution (NAS-95-020, chapter 3). The
 * programs differ in how they solve for the next time step.
 *
 * The components are density, momentum along x, y and z, and energy. All classes have the same
 * number of points along each direction.
 */
#pragma once

#define COMPONENTS 5
#define DENSITY 0
#define MOMENTUM 1 /* that along direction d: MOMENTUM + d */
#define ENERGY 4
#define DIRECTIONS 3

/* Constants of the equations, in the specification's numbers. */
#define C1 1.4  /* ratio of specific heats */
#define C2 0.4  /* C1 - 1 */
#define C34 0.1 /* viscosity */
#define C1C5 1.96
#define C1345 (C1C5 * C34)
#define DISSIPATION 0.25 /* fourth difference, explicit */

struct flow {
    int points; /* along each direction, with both boundaries */
    double dt;
    double first;  /* of central differences: 1 / (2 h), where h is the distance of points */
    double second; /* of second differences: 1 / h^2 */
};

struct flow flow_of(int points, double dt);

/* Second difference that is added along each direction, for stability. */
extern const double flow_damping[DIRECTIONS];

/* The weights of the fourth difference at a point of the grid, for the points from two before to
 * two after: one-sided next to the boundary. `flow_fourth_inside` where no boundary is near. */
extern const double flow_fourth_inside[5];
const double *flow_fourth_difference(int point, int points);

/* The steady solution at fractions of the cube from 0 to 1. */
void flow_exact(const double at[DIRECTIONS], double u[COMPONENTS]);

/* Where a program starts: the steady solution on the boundary, a blend of that in between. */
void flow_initial(const struct flow *flow, const int point[DIRECTIONS], double u[COMPONENTS]);

/* The steady solution at a point of the grid. */
void flow_exact_at(const struct flow *flow, const int point[DIRECTIONS], double u[COMPONENTS]);
