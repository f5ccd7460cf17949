/* Heat on a square plate by Jacobi's method: rows of a grid on each process, which exchange their
 * edges in every sweep. A program as people have it: it knows nothing of rocelab.
 *
 * jacobi SIDE SWEEPS */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double *cell(double *grid, int side, int row, int column)
{
    return &grid[(size_t)row * side + column];
}

/* One sweep over the rows between the edges; the largest change. */
static double sweep(double *from, double *to, int rows, int side)
{
    double change = 0.0;

    for (int row = 1; row <= rows; row++)
        for (int column = 1; column < side - 1; column++) {
            double next =
                0.25 * (*cell(from, side, row - 1, column) + *cell(from, side, row + 1, column) +
                        *cell(from, side, row, column - 1) + *cell(from, side, row, column + 1));
            change = fmax(change, fabs(next - *cell(from, side, row, column)));
            *cell(to, side, row, column) = next;
        }
    return change;
}

int main(int argc, char **argv)
{
    int rank, ranks, side, sweeps, rows;
    double *from, *to, change = 0.0, largest, started;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 3 || (side = atoi(argv[1])) < ranks || (sweeps = atoi(argv[2])) < 1) {
        fprintf(stderr, "usage: jacobi SIDE SWEEPS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    rows = side / ranks;
    from = calloc((size_t)(rows + 2) * side, sizeof *from);
    to = calloc((size_t)(rows + 2) * side, sizeof *to);
    if (rank == 0) /* a hot edge */
        for (int column = 0; column < side; column++)
            *cell(from, side, 0, column) = *cell(to, side, 0, column) = 1.0;
    MPI_Barrier(MPI_COMM_WORLD);
    started = MPI_Wtime();
    for (int done = 0; done < sweeps; done++) {
        int above = rank > 0 ? rank - 1 : MPI_PROC_NULL;
        int below = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
        double *swap;

        MPI_Sendrecv(cell(from, side, rows, 0), side, MPI_DOUBLE, below, 0, cell(from, side, 0, 0),
                     side, MPI_DOUBLE, above, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(cell(from, side, 1, 0), side, MPI_DOUBLE, above, 1,
                     cell(from, side, rows + 1, 0), side, MPI_DOUBLE, below, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        change = sweep(from, to, rows, side);
        swap = from;
        from = to;
        to = swap;
    }
    MPI_Reduce(&change, &largest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("largest change %.6f\n", largest);
        printf("solved in %.6f s\n", MPI_Wtime() - started);
    }
    free(from);
    free(to);
    MPI_Finalize();
    return 0;
}
