package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/programs"
	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/owner"
)

// runWithStats runs the program as a child, and tells at the end what it and
// its children have used (stats), and what they have done that adapters punish
// (strict, unless it is nil).
func runWithStats(s streams, held *heldDaemon, stats bool, strict *strictReport, path string, args, env []string) error {
	defer held.file.Close()
	begin := time.Now()
	cmd := &exec.Cmd{Path: path, Args: args, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		strict.remove()
		return notRun(args[0], err)
	}
	go func() {
		for sig := range signals {
			if sig != syscall.SIGINT && sig != syscall.SIGQUIT { // a terminal sends those to the child, too
				_ = cmd.Process.Signal(sig) // it may have ended
			}
		}
	}()
	err := waitAndAsk(cmd, held.file, stats)
	if stats {
		tellUse(s.err, held.file, args[0], begin)
	}
	if strict.end(s.err, args[0]) > 0 && strict.status != 0 {
		return statusError{nil, strict.status}
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err // nil, or it cannot be waited for
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return dieOf(status.Signal())
	}
	return statusError{nil, exit.ExitCode()}
}

// tellUse tells what processes have used since a time.
func tellUse(w io.Writer, held *os.File, program string, begin time.Time) {
	list, err := programs.Report(held)
	if err != nil {
		fmt.Fprintf(w, "rocev2 run: %v\n", err)
		return
	}
	writeUse(w, program, sinceThen(list, begin))
}

// askEvery is how often processes are asked for their counters.
const askEvery = 250 * time.Millisecond

// waitAndAsk waits for the program. Meanwhile it has the daemon ask all
// processes for their counters: one that ends by a signal, or by _exit in a
// handler, tells none at its end.
func waitAndAsk(cmd *exec.Cmd, held *os.File, ask bool) error {
	if !ask {
		return cmd.Wait()
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
			_, _ = programs.Report(held) // the last one tells of errors
		}
	}
}

// dieOf ends this process as the program has ended. Go's own handlers, which
// stay for faults, would write what its goroutines do.
func dieOf(sig syscall.Signal) error {
	signal.Reset(sig)
	var byDefault [4]uint64 // the kernel's struct sigaction, and SIG_DFL is 0
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // the program's core is the one to look at
	_ = unix.Kill(os.Getpid(), sig)
	return statusError{nil, 128 + int(sig)}
}

// sinceThen returns the leases that began in this run. That of the daemon began
// before.
func sinceThen(list []programs.Used, begin time.Time) []programs.Used {
	return slices.DeleteFunc(list, func(u programs.Used) bool { return u.Lease.Since.Before(begin) })
}

// writeUse tells what processes have used.
func writeUse(w io.Writer, program string, list []programs.Used) {
	if len(list) == 0 {
		fmt.Fprintf(w, "rocev2 run: %s has used no device of rocev2: no process of it has opened one.\n"+
			"It uses another transport, or its libraries have no support for verbs; rocev2 run -- ibv_devinfo shows the devices.\n"+
			"Where another process owns the port of the device (rocev2d), that process tells of it.\n", program)
		return
	}
	slices.SortStableFunc(list, func(a, b programs.Used) int {
		return cmp.Or(cmp.Compare(a.Lease.PID, b.Lease.PID), strings.Compare(a.Device, b.Device))
	})
	list = withoutTries(list)
	var sent, received uint64
	told := true
	for _, u := range list {
		l := u.Lease
		told = told && l.Told
		sent, received = sent+l.TxPackets, received+l.RxPackets
		fmt.Fprintf(w, "rocev2 run: %s, process %d, user %d, on %s (%v)\n", cmp.Or(l.Command, "?"), l.PID, l.UID, u.Device, u.Addr)
		if !l.Told {
			fmt.Fprintln(w, "  what it sent and received is not known: it ended soon, by _exit or a signal, and told nothing")
			continue
		}
		fmt.Fprintf(w, "  sent      %s in %s%s\n", amount(l.TxBytes, "byte"), amount(l.TxPackets, "packet"), wayText(l.TxBytes, l.TxShm))
		fmt.Fprintf(w, "  received  %s in %s%s\n", amount(l.RxBytes, "byte"), amount(l.RxPackets, "packet"), wayText(l.RxBytes, l.RxShm))
		fmt.Fprintf(w, "  made      %s", amount(l.MadeQPs, "queue pair"))
		if l.QPs > 0 || l.Connections > 0 {
			fmt.Fprintf(w, "; open: %s, %s", amount(uint64(l.QPs), "queue pair"), amount(uint64(l.Connections), "connection"))
		}
		fmt.Fprintln(w)
		if text := peersText(l.Reached, l.Peers, u.Addr); text != "" {
			fmt.Fprintf(w, "  peers     %s\n", text)
		}
	}
	if told && sent == 0 && received == 0 {
		fmt.Fprintf(w, "rocev2 run: the devices were opened, and no packet passed the network: %s used another transport for its data, or stayed within one process.\n", program)
	}
}

// withoutTries takes out what a process has opened and closed again unused,
// where it has opened the device once more: libraries do so to see what there
// is. The list is in order of processes and devices.
func withoutTries(list []programs.Used) []programs.Used {
	same := func(a, b programs.Used) bool { return a.Lease.PID == b.Lease.PID && a.Device == b.Device }
	return slices.DeleteFunc(slices.Clone(list), func(u programs.Used) bool {
		n := 0
		for _, v := range list {
			if same(u, v) && used(v.Lease) {
				n++
			}
		}
		return n > 0 && !used(u.Lease)
	})
}

// used reports whether something may have been done with a lease.
func used(l owner.Lease) bool {
	return !l.Told || l.MadeQPs > 0 || l.TxPackets > 0 || l.RxPackets > 0 || l.Connections > 0
}

// wayText says how bytes went: through UDP, or through shared memory.
func wayText(all, shm uint64) string {
	switch {
	case all == 0:
		return ""
	case shm == 0:
		return ", by UDP"
	case shm >= all:
		return ", all through shared memory"
	}
	return fmt.Sprintf(", by UDP, and of them %s through shared memory", amount(shm, "byte"))
}

// peersText lists the peers of queue pairs, and those of connections that had
// no queue pair here. It says which are known to be this software.
func peersText(reached []lease.Peer, others []netip.Addr, own netip.Addr) string {
	peers := slices.Clone(reached)
	for _, a := range others {
		if !slices.ContainsFunc(peers, func(p lease.Peer) bool { return p.Addr == a.Unmap() }) {
			peers = append(peers, lease.Peer{Addr: a})
		}
	}
	var names []string
	for _, p := range peers {
		name := p.Addr.String()
		if p.Addr.Unmap() == own.Unmap() {
			name += " (this address)"
		}
		if p.Native {
			name += " (rocev2)"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// amount is a number with what it counts.
func amount(n uint64, unit string) string {
	if n != 1 {
		unit += "s"
	}
	return strconv.FormatUint(n, 10) + " " + unit
}
