// Package abi is the binary interface between libibverbs and the kernel's
// verbs: the commands that a program writes to a file of a device, and the
// replies to them, with the parts that the driver of Soft-RoCE adds
// (linux/rdma/ib_user_verbs.h and rdma_user_rxe.h).
//
// It decodes what a program wrote and encodes what it gets. A program is not
// trusted: a command that is too short is refused, and nothing else is looked
// at here. Numbers are those of Linux on a little-endian machine, whatever this
// runs on.
package abi
