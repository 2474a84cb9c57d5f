// Package sockfilter gives packet filters (BPF) to sockets of Linux.
package sockfilter

import (
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// All is what a filter returns for a packet that passes whole.
const All = 1<<32 - 1

// NetworkHeader is the offset at which the loads of a filter find the IP
// header, whatever is before it (SKF_NET_OFF).
const NetworkHeader = 0xfff00000

// Attach has a socket take the packets that the program lets pass.
func Attach(fd int, program ...bpf.Instruction) error {
	return os.NewSyscallError("setsockopt SO_ATTACH_FILTER", set(fd, unix.SO_ATTACH_FILTER, program))
}

// Steer has the program choose among the sockets that share the port of this
// one: it returns the index of one.
func Steer(fd int, program ...bpf.Instruction) error {
	return os.NewSyscallError("setsockopt SO_ATTACH_REUSEPORT_CBPF", set(fd, unix.SO_ATTACH_REUSEPORT_CBPF, program))
}

func set(fd, option int, program []bpf.Instruction) error {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, option, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}
