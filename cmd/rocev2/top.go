package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/cmd/rocev2/top"
	"github.com/gosoftroce/rocev2/internal/regular"
)

// topFlags are the flags of top.
type topFlags struct {
	daemon    string
	tokenFile string
	interval  time.Duration
	table     string
	sort      string
	plain     top.Plain
}

func newTop(io streams) *cobra.Command {
	f := topFlags{interval: time.Second}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch devices, queue pairs and programs",
		Long: `Show what devices, queue pairs and programs do, as it changes: rates, packets
sent again, round trip times.

The values come from a rocev2d, over its JSON interface. Without --daemon they
are of the one at ` + top.DefaultDaemon + `, if one answers there, and of the other
processes of this host whose ports programs of this user share, such as the
daemons of "rocev2 run". Those tell of programs, and not of queue pairs.

Keys: q quits, Tab shows another table, left and right choose the column to sort
by, r sorts the other way round, up and down scroll, ? shows all keys.

With --once, with --json, and where the output is no terminal, tables are printed
instead, one of each per interval. The first ones come after an interval, since
rates need two looks.`,
		Example: `  rocev2 top
  rocev2 top --daemon 192.0.2.7 --token-file token
  rocev2 top --table programs --sort rx_bytes_per_second
  rocev2 top --once --json | jq .devices`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, io) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.daemon, "daemon", "", "`address` of a rocev2d: HOST, HOST:PORT or URL (default "+top.DefaultDaemon+", and what there is on this host)")
	fs.StringVar(&f.tokenFile, "token-file", "", "`FILE` with the token of the daemon")
	fs.DurationVarP(&f.interval, "interval", "i", f.interval, "`time` between two looks, from 100ms")
	fs.StringVar(&f.table, "table", "", "the `table` to begin with on a terminal: devices, qps or programs (default qps)")
	fs.StringVar(&f.sort, "sort", "", "the `column` to sort by, by its title or its name in JSON (default: bytes sent)")
	fs.BoolVar(&f.plain.Once, "once", false, "print the tables once")
	fs.BoolVar(&f.plain.JSON, "json", false, "print one line of JSON per interval")
	fs.IntVar(&f.plain.Rows, "rows", 20, "print so many rows of each table at most; 0 means all")
	return cmd
}

func (f *topFlags) run(cmd *cobra.Command, io streams) error {
	if f.interval < 100*time.Millisecond || f.interval > time.Hour {
		return usagef("--interval %v: it must be from 100ms to 1h", f.interval)
	}
	if f.plain.Rows < 0 {
		return usagef("--rows %d: it must not be negative", f.plain.Rows)
	}
	view, err := top.NewView(f.table, f.sort, f.interval)
	if err != nil {
		return usageError{err}
	}
	src, err := f.source()
	if err != nil {
		return err
	}
	in, _ := io.in.(*os.File)
	out, ok := io.out.(*os.File)
	if f.plain.Once || f.plain.JSON || !ok || in == nil {
		return top.Print(cmd.Context(), io.out, src, view, f.plain)
	}
	term, err := top.OpenTerminal(in, out)
	if errors.Is(err, top.ErrNoTerminal) {
		return top.Print(cmd.Context(), io.out, src, view, f.plain)
	}
	if err != nil {
		return err
	}
	first, err := src.Sample(cmd.Context())
	if err != nil {
		return err
	}
	return top.Live(cmd.Context(), term, src, view, first)
}

// source is where the values come from.
func (f *topFlags) source() (top.Source, error) {
	token := ""
	if f.tokenFile != "" {
		b, err := regular.Read(f.tokenFile, 4096)
		if err != nil {
			return nil, err
		}
		if token = strings.TrimSpace(string(b)); token == "" || strings.ContainsAny(token, "\r\n") {
			return nil, fmt.Errorf("%s: it must have the token, on one line", f.tokenFile)
		}
	}
	if f.daemon == "" {
		d, err := top.NewDaemon(top.DefaultDaemon, token)
		return top.Both{Daemon: d}, err
	}
	d, err := top.NewDaemon(f.daemon, token)
	if err != nil {
		return nil, usageError{err}
	}
	return d, nil
}
