// Package programs has unmodified verbs programs, with the distribution's own
// libibverbs and librdmacm, use devices of this software.
//
// A [Host] makes a directory. There are the files that a program sees as sysfs
// and /dev/infiniband, and the sockets where processes ask the owners of the
// ports for leases (package transport/owner). No command passes the host: a
// small C library (folder preload) is preloaded into a program and redirects
// paths to the directory. When the program opens a device, the library loads
// the adapter, which is this software, into the program's own process.
//
//	program                                  Host
//	  libibverbs, librdmacm                    tree of files as sysfs
//	  librocev2-preload.so ── paths ────►      dev/infiniband/uverbs0: address=…
//	  librocev2-adapter.so ── asks ─────►      port/ADDRESS: the owner
//	       │ leased socket, UDP port 4791
//
// A process serves programs by [Listen] and [Host.OpenDevice], until it closes
// the Host. A program finds the host by its environment: LD_PRELOAD names the
// library, and ROCEV2_PROGRAMS is Config.Dir, an absolute path.
//
// The text of a device file is one key=value a line:
//
//	address=192.0.2.1     of the device; fe80::1%eth0 if it is link-local
//	name=rxe_eth0         of the device in sysfs
//	index=0               of the device file
//	guid=0250c2fffe000001 of the node, hexadecimal
//	leased=1              the port has an owner: a program takes a lease or none
//	loopback=1            packets to the own address stay in the device
//	shm=1                 packets to processes of this host pass shared memory
//	strict=on             strict mode, as verbs.Config.Strict
//	profile=mlx5          and Profile
//
// A key that a reader does not know is to be ignored. It exists on Linux only,
// but for the library's source.
package programs
