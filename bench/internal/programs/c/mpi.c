/*
 * mpi measures messages of one size between ranks of MPI.
 *
 * usage: mpi ring|pingpong BYTES SECONDS. Rank 0 prints what was measured in the
 * middle half of that time: "gbps N", what each rank has sent, and for pingpong
 * "us N", half a round trip.
 *
 * In a ring every rank sends to the next one and receives from the one before,
 * eight messages at once.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 8 };

static char *out[AT_ONCE], *in[AT_ONCE];
static int size, rank, ranks;

static void ring(void)
{
	int before = (rank + ranks - 1) % ranks, next = (rank + 1) % ranks;
	MPI_Request r[2 * AT_ONCE];

	for (int i = 0; i < AT_ONCE; i++) {
		MPI_Irecv(in[i], size, MPI_BYTE, before, i, MPI_COMM_WORLD, &r[i]);
		MPI_Isend(out[i], size, MPI_BYTE, next, i, MPI_COMM_WORLD, &r[AT_ONCE + i]);
	}
	MPI_Waitall(2 * AT_ONCE, r, MPI_STATUSES_IGNORE);
}

static void pingpong(void)
{
	for (int i = 0; i < AT_ONCE; i++) {
		if (rank == 0)
			MPI_Send(out[0], size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
		if (rank < 2)
			MPI_Recv(in[0], size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (rank == 1)
			MPI_Send(out[0], size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
	}
}

/* go_on has all ranks do what rank 0 has decided. */
static int go_on(int go)
{
	MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
	return go;
}

int main(int argc, char **argv)
{
	double seconds, begin, first = 0, last = 0, rounds = 0, at;
	int is_ring, repeat;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 4 || ranks < 2) {
		fprintf(stderr, "usage: mpi ring|pingpong BYTES SECONDS, with two ranks\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	is_ring = strcmp(argv[1], "ring") == 0;
	size = atoi(argv[2]);
	seconds = atof(argv[3]);
	for (int i = 0; i < AT_ONCE; i++) {
		out[i] = calloc(1, size);
		in[i] = calloc(1, size);
	}
	repeat = size >= 1 << 20 ? 2 : 64;
	MPI_Barrier(MPI_COMM_WORLD);
	begin = MPI_Wtime();
	do {
		for (int i = 0; i < repeat; i++)
			is_ring ? ring() : pingpong();
		at = MPI_Wtime() - begin;
		if (first == 0 && at > seconds / 4) {
			first = at;
		} else if (first > 0 && last < seconds * 3 / 4) {
			last = at;
			rounds += repeat;
		}
	} while (go_on(at < seconds));
	if (rank == 0) {
		printf("gbps %.6f\n", rounds * AT_ONCE * size * 8 / (last - first) / 1e9);
		if (!is_ring)
			printf("us %.4f\n", (last - first) / rounds / AT_ONCE / 2 * 1e6);
	}
	MPI_Finalize();
	return 0;
}
