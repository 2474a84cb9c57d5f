/* alltoall has every rank send a block to every other, and checks every byte. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned char byte_of(int from, int to, int i)
{
	return (unsigned char)(from * 31 + to * 17 + i + (i >> 8));
}

int main(int argc, char **argv)
{
	static const int sizes[] = {1, 64, 3000, 65536, 262144};
	int rank, ranks, bad = 0, all_bad;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int round = 0; round < 10; round++) {
		int n = sizes[round % 5];
		unsigned char *out = malloc((size_t)n * ranks), *in = calloc(n, ranks);

		for (int to = 0; to < ranks; to++)
			for (int i = 0; i < n; i++)
				out[(size_t)to * n + i] = byte_of(rank, to, i);
		MPI_Alltoall(out, n, MPI_BYTE, in, n, MPI_BYTE, MPI_COMM_WORLD);
		for (int from = 0; from < ranks; from++)
			for (int i = 0; i < n; i++)
				bad += in[(size_t)from * n + i] != byte_of(from, rank, i);
		free(in);
		free(out);
	}
	MPI_Reduce(&bad, &all_bad, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf(all_bad ? "alltoall: %d mistakes\n" : "alltoall: all right\n", all_bad);
	MPI_Finalize();
	return bad != 0;
}
