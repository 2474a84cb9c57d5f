// Package ring reads and writes the queues that the user-space driver of
// Soft-RoCE (librxe) shares with the kernel: rings of send requests, receives
// and completions in memory that both sides have mapped (struct rxe_queue_buf
// of linux/rdma/rdma_user_rxe.h).
//
// The other side is a program that is not trusted. It may write anything
// anywhere in a ring, at any moment. So what describes the ring (the size and
// the number of its elements, and the index of this side) is private, and what
// lies in shared memory is only for the program to read. An element is copied
// out once, and the copy is checked and used. An index is read once. A ring
// that lies gives an error or an odd request, and never touches anything
// outside of itself.
//
// Numbers have the byte order of the machine, for both sides are on it.
//
// The package has no locks. A Consumer or a Producer is for one goroutine at a
// time, but for what says otherwise.
package ring
