// Package programs lets unmodified verbs programs, with the distribution's own
// libibverbs and librdmacm, use devices of this process.
//
// A small C library (folder preload) is preloaded into such a program. It
// answers for the device files of RDMA and for their part of sysfs. What a
// program writes to a device file goes over a Unix socket to a [Host], which
// has a session for each open file and hands the commands to package uverbs or
// ucma. Queues are in memory that both share, so neither a post nor a poll asks
// anybody.
//
//	program                                       Host
//	  libibverbs, librxe, librdmacm                 sessions ── uverbs, ucma
//	  librocev2-preload.so ── unix SEQPACKET ──►    tree of files as sysfs
//
// A process serves programs by [Listen] and [Host.OpenDevice], until it closes
// the Host. A program finds the host by its environment: LD_PRELOAD names a
// file with what [Library] returns, and ROCEV2_PROGRAMS is Config.Dir, an
// absolute path (errors are left out here):
//
//	h, err := programs.Listen(programs.Config{Dir: dir})
//	err = h.OpenDevice(netip.MustParseAddr("127.0.0.1"), verbs.Config{})
//	lib, err := programs.Library(ctx)
//	err = os.WriteFile(so, lib, 0o755)
//	cmd := exec.Command("ibv_devinfo")
//	cmd.Env = append(os.Environ(), "LD_PRELOAD="+so, "ROCEV2_PROGRAMS="+dir)
//	err = cmd.Run()
//
// A program is not trusted. Whatever it sends, the others do not notice.
//
// The package knows nothing of the commands, and nothing of how memory of a
// program is reached. It exists on Linux only, but for the library's source.
package programs
