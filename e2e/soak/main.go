//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// options are the flags. Those of the second half are set by the controller for
// the processes that it starts.
type options struct {
	length time.Duration
	conns  int
	loss   string
	pace   time.Duration
	chaos  time.Duration
	report time.Duration
	seed   uint64
	dir    string
	shared bool

	role    string
	addr    string
	port    string
	servers string
	first   int
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		if errors.Is(err, verbs.ErrNoOwner) {
			os.Exit(deviceFailed)
		}
		os.Exit(1)
	}
}

func parse() (o options, err error) {
	flag.DurationVar(&o.length, "for", time.Hour, "how long")
	flag.IntVar(&o.conns, "conns", 64, "connections, a multiple of 8")
	flag.StringVar(&o.loss, "loss", "1%", "of the packets that each process sends and receives")
	flag.DurationVar(&o.pace, "pace", 50*time.Millisecond, "pause of a connection between two rounds")
	flag.DurationVar(&o.chaos, "chaos", 4*time.Second, "mean time between two kills or stops")
	flag.DurationVar(&o.report, "report", 10*time.Second, "time between two samples of memory and goroutines")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of who is killed or stopped, and when")
	flag.StringVar(&o.dir, "dir", "", "where files are kept; a temporary directory by default")
	flag.BoolVar(&o.shared, "shared", false, "all processes on one address, whose port rocev2d owns; some are rping, where that is installed")
	flag.StringVar(&o.role, "role", "", "set by the controller: server or client")
	flag.StringVar(&o.port, "port", "", "set by the controller")
	flag.StringVar(&o.addr, "addr", "", "set by the controller")
	flag.StringVar(&o.servers, "servers", "", "set by the controller")
	flag.IntVar(&o.first, "first", 0, "set by the controller")
	flag.Parse()
	switch {
	case flag.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case o.role == "" && (o.conns < 8 || o.conns%8 != 0):
		err = fmt.Errorf("-conns %d: it is a multiple of 8", o.conns)
	case o.length < time.Second:
		err = fmt.Errorf("-for %v: it is a second at least", o.length)
	}
	return o, err
}

func run() error {
	o, err := parse()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch o.role {
	case "":
		return control(ctx, o)
	case "server":
		return serve(ctx, o)
	case "client":
		return beClients(ctx, o)
	}
	return errors.New("-role is for the controller")
}
