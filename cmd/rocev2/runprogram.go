package main

import (
	"context"

	"github.com/spf13/cobra"
)

// programFlags are the flags of run.
type programFlags struct {
	devices  []string
	hardware bool
	shm      bool
	stats    string // statsText or statsJSON
	report   string // file for them
	serve    string // directory: be the daemon
	strict   strictFlags
}

// check checks the flags, and fills in what they imply.
func (f *programFlags) check() error {
	if f.report != "" && f.stats == "" {
		f.stats = statsText
	}
	if f.stats != "" && f.stats != statsText && f.stats != statsJSON {
		return usagef("--stats=%s: the format is text or json", f.stats)
	}
	return nil
}

const runLong = `Run an unmodified verbs program, with the libibverbs and librdmacm of the
distribution, on devices of rocev2. Nothing is needed of the kernel, and no
privileges. Child processes see the devices, too.

--device names the addresses that become devices rxe_eth0, rxe_lo0 ...: without
it, the host's first address that is not of the loopback interface. Each program
has its devices in its own process, and shares the UDP port of the address with
the others: a daemon owns the port. Programs that name the same addresses share
a daemon, which run starts, and which ends a second after the last of them.
Without --device the daemon of the system is used, if there is one (/run/rocev2).
Go programs of the same user share the port, too, without run.

--stats writes to standard error when the program has ended which transport it
and its children have used: for each process and device the bytes sent and
received, the queue pairs by type, the requests posted by operation, and the
peers. The last line says whether RDMA was used. --stats=json writes one line
of JSON, --stats-file writes either to a file.

--strict has the devices behave like adapters: what those refuse is refused, and
what they punish is told on standard error when the program has ended. --profile
gives the devices the limits of an adapter, and stands for --strict too. The
rules are those of docs/strict.md: on (which --strict alone means), all, names
with commas between them, and -NAME without one. With = after the flag:
--strict=on,-no-receive. Go programs have a setting of their own for it
(verbs.Config.Strict), which run does not change.

Static programs and setuid programs cannot be run so: they load no library that
is named from outside. Nor can programs for musl, whose loader refuses it.

Environment: ROCEV2_PROGRAMS is the directory of the daemon to use or to start.
A daemon that is there already keeps its devices: --device, --hardware and --shm
change nothing of it. Without --device the same holds for that of the system.
LD_PRELOAD keeps what it has (librspreload.so, for example).

Exit status: that of the program, or that of --strict-status where it is set and
something was found; 127 if it is not found, 126 if it is found and
cannot be run so, 1 or 2 if it could not be started for another reason.`

func newRunProgram(io streams) *cobra.Command {
	var f programFlags
	cmd := &cobra.Command{
		Use:   "run [--device ADDRESS]... -- PROGRAM [ARGUMENT]...",
		Short: "Run an unmodified verbs program",
		Long:  runLong,
		Example: `  rocev2 run -- ibv_devinfo
  rocev2 run --device 127.0.0.1 -- ib_write_bw        the server of a bandwidth test ...
  rocev2 run --device 127.0.0.2 -- ib_write_bw HOST   ... and its client
  rocev2 run --device eth0 -- mpirun -n 2 ./program
  rocev2 run --strict --profile mlx5 -- ./program     find what hardware would not take`,
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && f.serve == "" {
				return usagef("which program? rocev2 run -- PROGRAM [ARGUMENT]...")
			}
			return f.check()
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.strict.check(); err != nil {
				return err
			}
			if f.serve != "" {
				return servePrograms(cmd.Context(), io, f)
			}
			return runProgram(cmd.Context(), io, f, args)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.SetInterspersed(false) // what follows the program is the program's
	fs.StringSliceVarP(&f.devices, "device", "d", nil, "an `address` of this host or an interface; may be repeated, each is a device")
	fs.BoolVar(&f.hardware, "hardware", false, "programs see the kernel's RDMA devices, too")
	fs.BoolVar(&f.shm, "shm", false, "packets to other processes of this host go through shared memory")
	fs.Var(statsFlag{&f.stats}, "stats", "at the end, tell which transport the program has used; --stats=json tells it as a line of JSON")
	fs.Lookup("stats").NoOptDefVal = statsText
	fs.StringVar(&f.report, "stats-file", "", "write that to a `FILE` instead of the standard error")
	f.strict.add(fs)
	fs.StringVar(&f.serve, "serve", "", "be the daemon of a directory")
	if err := fs.MarkHidden("serve"); err != nil {
		panic(err)
	}
	return cmd
}

// programRunner is what each system has.
var (
	_ func(context.Context, streams, programFlags, []string) error = runProgram
	_ func(context.Context, streams, programFlags) error           = servePrograms
)
