//go:build linux

// The command rxeguest boots kernel guests for work by hand and reaches those
// that run, also the ones of a running test.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

const usage = `rxeguest boots Linux kernels with Soft-RoCE in QEMU, without KVM (root needed).

  rxeguest up [LINE...]               boot guests (6.1, 6.12; default both) and stay until interrupted
  rxeguest exec LINE COMMAND [ARG...] run a command in a guest: one word is a shell line
  rxeguest host COMMAND [ARG...]      run a command on our side, in the network namespace, as root
  rxeguest user COMMAND [ARG...]      the same as an ordinary user without capabilities
  rxeguest loss LINE PERCENT          lose packets in a guest, both directions; 0 ends it
  rxeguest list                       the running labs

Flag before the command: -ns NAME chooses the lab when several run.

In a guest: rxe0 with GID index 1 = IPv4, 2 = IPv6.
`

func main() {
	ns := flag.String("ns", "", "namespace of the lab, when several run")
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage) }
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	code, err := run(ctx, *ns, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "rxeguest:", err)
		code = max(code, 1)
	}
	stop()
	os.Exit(code)
}

var errUsage = errors.New("wrong arguments; see -h")

func run(ctx context.Context, ns string, args []string) (int, error) {
	if len(args) == 0 {
		args = []string{"up"}
	}
	verb, args := args[0], args[1:]
	switch verb {
	case "up":
		return 0, up(ctx, args)
	case "list":
		fmt.Println(strings.Join(guest.Namespaces(), "\n"))
		return 0, nil
	}
	lab, err := guest.Connect(ns)
	if err != nil {
		return 1, err
	}
	switch {
	case verb == "host" && len(args) > 0:
		return local(ctx, lab, args)
	case verb == "user" && len(args) > 0:
		return local(ctx, lab, append([]string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--no-new-privs"}, args...))
	case verb != "exec" && verb != "loss" || len(args) < 2:
		return 1, errUsage
	}
	g := lab.Guest(args[0])
	if g == nil {
		return 1, fmt.Errorf("no guest %q; there are %v", args[0], guest.Lines)
	}
	if verb == "loss" {
		percent, err := strconv.ParseFloat(args[1], 64)
		if err != nil {
			return 1, err
		}
		return 0, g.SetLoss(ctx, percent)
	}
	argv := args[1:]
	if len(argv) == 1 {
		argv = []string{"sh", "-c", argv[0]}
	}
	return g.Attach(ctx, guest.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, argv...)
}

func up(ctx context.Context, lines []string) error {
	if len(lines) == 0 {
		lines = nil
	}
	lab, err := guest.Start(ctx, guest.Options{Lines: lines, Logf: func(f string, a ...any) { fmt.Printf(f+"\n", a...) }})
	if err != nil {
		return err
	}
	fmt.Printf("%sserial consoles in %s\nInterrupt ends the guests.\n", lab, lab.Dir)
	<-ctx.Done()
	return lab.Close()
}

func local(ctx context.Context, lab *guest.Lab, argv []string) (int, error) {
	cmd := lab.Host.Command(ctx, argv...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		return ee.ExitCode(), nil
	}
	return 0, err
}
