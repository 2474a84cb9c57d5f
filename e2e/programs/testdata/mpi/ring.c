/* ring sends messages of many sizes from rank to rank, and checks every byte. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned char byte_of(int from, int round, int i)
{
	return (unsigned char)(from * 31 + round * 7 + i + (i >> 8));
}

int main(int argc, char **argv)
{
	static const int sizes[] = {0, 1, 100, 1024, 4097, 65536, 262144, 1 << 20};
	int rank, ranks, bad = 0, all_bad;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	for (int round = 0; round < 40; round++) {
		int n = sizes[round % 8];
		unsigned char *out = malloc(n + 1), *in = calloc(n + 1, 1);
		MPI_Request both[2];
		MPI_Status said[2];
		int got;

		for (int i = 0; i < n; i++)
			out[i] = byte_of(rank, round, i);
		MPI_Irecv(in, n, MPI_BYTE, before, round, MPI_COMM_WORLD, &both[0]);
		MPI_Isend(out, n, MPI_BYTE, next, round, MPI_COMM_WORLD, &both[1]);
		MPI_Waitall(2, both, said);
		MPI_Get_count(&said[0], MPI_BYTE, &got);
		bad += got != n;
		for (int i = 0; i < n; i++)
			bad += in[i] != byte_of(before, round, i);
		free(in);
		free(out);
	}
	MPI_Reduce(&bad, &all_bad, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf(all_bad ? "ring: %d mistakes\n" : "ring: all right\n", all_bad);
	MPI_Finalize();
	return bad != 0;
}
