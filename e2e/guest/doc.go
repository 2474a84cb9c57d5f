// Package guest runs real kernels as test peers: it boots small Linux guests
// whose kernel Soft-RoCE device rxe0 is reachable from a network namespace
// made for the run, and runs commands in them.
//
// [Prepare] gathers what is needed in a cache outside the tree: the kernels
// (Linux 6.1 of Debian 12 and 6.12 of its backports) and the userland of the
// guests (rdma-core's programs, perftest, iproute2, busybox), all as Debian
// packages, fetched once through apt with a configuration of its own so that
// the machine's package sources stay as they are. [Start] makes the namespace
// and boots the guests under QEMU's software emulation; neither KVM nor any
// kernel module of the host is needed, but root is.
//
// One run looks like this:
//
//	namespace rocev2-e2e-PID
//	  br0 (MTU 9000)  198.18.0.1, .11      fd00:aa::1, ::11    our side
//	   ├─ t1 ── guest 6.1   eth0, rxe0   198.18.0.2  fd00:aa::2
//	   └─ t2 ── guest 6.12  eth0, rxe0   198.18.0.4  fd00:aa::4
//	  ctl0            198.19.0.1           commands, never lossy
//	   ├─ c1 ── guest 6.1   eth1         198.19.0.2
//	   └─ c2 ── guest 6.12  eth1         198.19.0.4
//
// Each guest has an address on our side that is its own, so that two tests
// can bind UDP port 4791 at the same time. In a guest, GID index 1 is its
// IPv4 address and 2 its IPv6 address.
//
// [Lab.Between] takes two guests off the bridge and gives a program both ends
// of what is between them.
//
// The package measures nothing: timings under emulation mean little. It runs
// on Linux only; where a machine lacks something, errors are [*Unavailable].
package guest

// Unavailable says that this machine cannot run kernel guests, and why. Tests
// skip on it.
type Unavailable struct{ Reason string }

func (e *Unavailable) Error() string { return "kernel guests are not available here: " + e.Reason }
