/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MPI_Allreduce of float32 sums, timed as wring-bench times: a barrier, one call, the median over
 * the iterations, of the slowest rank. Usage: compare_mpi ITERATIONS NBYTES... ; one JSON object a
 * size. Built by scripts/compare.sh only; wring itself does not use MPI.
 */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double slowest_median(float *send, float *recv, int count, int iterations)
{
    double *samples = malloc((size_t)iterations * sizeof *samples), slowest;
    for (int i = -1; i < iterations; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (i >= 0)
            samples[i] = MPI_Wtime() - start;
    }
    qsort(samples, (size_t)iterations, sizeof *samples, compare);
    MPI_Allreduce(&samples[iterations / 2], &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    free(samples);
    return slowest;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, iterations = argc > 1 ? atoi(argv[1]) : 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int a = 2; a < argc; a++) {
        size_t nbytes = strtoull(argv[a], NULL, 10);
        float *send = calloc(1, nbytes), *recv = calloc(1, nbytes);
        for (size_t i = 0; i < nbytes / sizeof *send; i++)
            send[i] = (float)((i + (size_t)rank) % 1000);
        double seconds = slowest_median(send, recv, (int)(nbytes / sizeof *send), iterations);
        if (rank == 0)
            printf("{\"size\":%zu,\"time_us\":%.3f}\n", nbytes, 1e6 * seconds);
        free(send);
        free(recv);
    }
    MPI_Finalize();
    return 0;
}
