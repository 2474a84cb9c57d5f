/*
 * ring measures MPI: every rank sends messages of 256 KiB to the next one and
 * receives from the one before.
 *
 * usage: ring SECONDS. Rank 0 prints "gbps N": what each rank has sent in the
 * middle half of that time.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 256 << 10, AT_ONCE = 8 };

static char out[AT_ONCE][SIZE], in[AT_ONCE][SIZE];

static void exchange(int before, int next)
{
	MPI_Request r[2 * AT_ONCE];

	for (int i = 0; i < AT_ONCE; i++) {
		MPI_Irecv(in[i], SIZE, MPI_BYTE, before, i, MPI_COMM_WORLD, &r[i]);
		MPI_Isend(out[i], SIZE, MPI_BYTE, next, i, MPI_COMM_WORLD, &r[AT_ONCE + i]);
	}
	MPI_Waitall(2 * AT_ONCE, r, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv)
{
	int rank, ranks, go = 1;
	double seconds = argc > 1 ? atof(argv[1]) : 1, begin, first = 0, last = 0, messages = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Barrier(MPI_COMM_WORLD);
	begin = MPI_Wtime();
	while (go) {
		for (int i = 0; i < 8; i++)
			exchange((rank + ranks - 1) % ranks, (rank + 1) % ranks);
		double at = MPI_Wtime() - begin;

		if (first == 0 && at > seconds / 4)
			first = at;
		else if (first > 0 && last < seconds * 3 / 4) {
			last = at;
			messages += 8 * AT_ONCE;
		}
		go = at < seconds;
		MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
	if (rank == 0)
		printf("gbps %.4f\n", messages * SIZE * 8 / (last - first) / 1e9);
	MPI_Finalize();
	return 0;
}
