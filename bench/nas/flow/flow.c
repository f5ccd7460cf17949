#include "nas/flow/flow.h"

const double flow_damping[DIRECTIONS] = {0.75, 0.75, 1.0};

const double flow_fourth_inside[5] = {1, -4, 6, -4, 1};

const double *flow_fourth_difference(int point, int points)
{
    static const double first[] = {0, 0, 5, -4, 1}, second[] = {0, -4, 6, -4, 1};
    static const double last[] = {1, -4, 5, 0, 0}, last_but_one[] = {1, -4, 6, -4, 0};

    if (point == 1)
        return first;
    if (point == 2)
        return second;
    if (point == points - 2)
        return last;
    if (point == points - 3)
        return last_but_one;
    return flow_fourth_inside;
}

/* The steady solution: a constant, and the coefficients of the first to fourth power of x, y, z. */
static const struct {
    double constant;
    double powers[DIRECTIONS][4];
} exact[COMPONENTS] = {
    {2, {{0, 5, 0.02, 0.5}, {0, 3, 0.01, 0.4}, {4, 0.5, 0.03, 0.3}}},
    {1, {{0, 1, 0.01, 0.4}, {0, 2, 0.03, 0.3}, {0, 3, 0.02, 0.5}}},
    {2, {{2, 0, 0.04, 0.3}, {0, 2, 0.03, 0.5}, {0, 3, 0.05, 0.4}}},
    {2, {{2, 0, 0.03, 0.2}, {0, 2, 0.05, 0.1}, {0, 3, 0.04, 0.3}}},
    {5, {{4, 0.1, 0.05, 0.1}, {3, 0.4, 0.04, 0.3}, {2, 0.3, 0.03, 0.2}}},
};

struct flow flow_of(int points, double dt)
{
    double intervals = points - 1;

    return (struct flow){points, dt, intervals / 2, intervals * intervals};
}

void flow_exact(const double at[DIRECTIONS], double u[COMPONENTS])
{
    for (int m = 0; m < COMPONENTS; m++) {
        u[m] = exact[m].constant;
        for (int d = 0; d < DIRECTIONS; d++) {
            const double *c = exact[m].powers[d];

            u[m] += at[d] * (c[0] + at[d] * (c[1] + at[d] * (c[2] + at[d] * c[3])));
        }
    }
}

static void fractions_of(const struct flow *flow, const int point[DIRECTIONS],
                         double at[DIRECTIONS])
{
    for (int d = 0; d < DIRECTIONS; d++)
        at[d] = (double)point[d] / (flow->points - 1);
}

void flow_exact_at(const struct flow *flow, const int point[DIRECTIONS], double u[COMPONENTS])
{
    double at[DIRECTIONS];

    fractions_of(flow, point, at);
    flow_exact(at, u);
}

/* Transfinite interpolation: 1 - (1 - x)(1 - y)(1 - z), where x, y and z stand for the linear
 * interpolation between the two boundaries along that direction. */
void flow_initial(const struct flow *flow, const int point[DIRECTIONS], double u[COMPONENTS])
{
    double at[DIRECTIONS];
    double between[DIRECTIONS][COMPONENTS];

    for (int d = 0; d < DIRECTIONS; d++)
        if (point[d] == 0 || point[d] == flow->points - 1) {
            flow_exact_at(flow, point, u);
            return;
        }
    fractions_of(flow, point, at);
    for (int d = 0; d < DIRECTIONS; d++) {
        double low[COMPONENTS], high[COMPONENTS], end[DIRECTIONS] = {at[0], at[1], at[2]};

        end[d] = 0;
        flow_exact(end, low);
        end[d] = 1;
        flow_exact(end, high);
        for (int m = 0; m < COMPONENTS; m++)
            between[d][m] = at[d] * high[m] + (1 - at[d]) * low[m];
    }
    for (int m = 0; m < COMPONENTS; m++) {
        double x = between[0][m], y = between[1][m], z = between[2][m];

        u[m] = x + y + z - x * y - y * z - z * x + x * y * z;
    }
}
