/* allreduce adds vectors of all ranks, and checks every element. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	static const int sizes[] = {1, 10, 1000, 20000, 131072};
	int rank, ranks, bad = 0, all_bad;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int round = 0; round < 20; round++) {
		int n = sizes[round % 5];
		long *mine = malloc(n * sizeof *mine), *sum = calloc(n, sizeof *sum);

		for (int i = 0; i < n; i++)
			mine[i] = (long)(rank + 1) * (i + round);
		MPI_Allreduce(mine, sum, n, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
		for (int i = 0; i < n; i++)
			bad += sum[i] != (long)ranks * (ranks + 1) / 2 * (i + round);
		free(sum);
		free(mine);
	}
	MPI_Reduce(&bad, &all_bad, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf(all_bad ? "allreduce: %d mistakes\n" : "allreduce: all right\n", all_bad);
	MPI_Finalize();
	return bad != 0;
}
