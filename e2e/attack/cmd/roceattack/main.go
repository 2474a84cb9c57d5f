// Command roceattack attacks live devices of this module and reports what came
// of it: a table, or JSON. It exits with status 1 if something did not hold.
//
// As root, or where a user may have a network namespace, it runs in one of its
// own and forges packets on a raw socket there; otherwise they enter the
// victim's link above its socket.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"

	"github.com/gosoftroce/rocev2/e2e/attack"
	"github.com/gosoftroce/rocev2/e2e/attack/leases"
	"github.com/gosoftroce/rocev2/e2e/attack/strangers"
)

func main() {
	var code int
	var err error
	switch {
	case os.Getenv(strangers.ListenEnv) != "": // this process is a victim
		err = strangers.Listen(context.Background())
	case os.Getenv(leases.ChildEnv) != "":
		err = leases.Child(context.Background())
	default:
		code, err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "roceattack:", err)
		code = 2
	}
	os.Exit(code)
}

type options struct {
	pattern *regexp.Regexp
	scale   attack.Scale
	wire    string
	json    bool
	list    bool
	blind   bool
	short   bool
	daemon  string
	step    int
	seed    uint64
}

func parse() (options, error) {
	var o options
	pattern := flag.String("run", "", "run only attacks whose name matches this regular expression")
	flag.BoolVar(&o.short, "short", false, "run the short versions, as the tests do")
	flag.StringVar(&o.wire, "wire", "auto", "how packets are forged: raw, inject, or auto: raw in a namespace of its own if that can be had")
	flag.BoolVar(&o.json, "json", false, "print JSON")
	flag.BoolVar(&o.list, "list", false, "list the attacks and what must hold against them")
	flag.BoolVar(&o.blind, "blind", true, "measure how many packets blind attacks need")
	flag.StringVar(&o.daemon, "daemon", "", "path of a rocev2d: it is attacked as the owner of a port; floods of forged requests are sent to it and to a program of package rdma, and silent connections (needs the raw wire)")
	flag.IntVar(&o.step, "step", 50, "PSNs between two that -blind tries, far from the expected one")
	flag.Uint64Var(&o.seed, "seed", 1, "of random choices")
	flag.Parse()
	if flag.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; -run takes the names of attacks", flag.Arg(0))
	}
	if o.wire != "auto" && o.wire != "raw" && o.wire != "inject" {
		return o, fmt.Errorf("-wire %s: it is raw, inject or auto", o.wire)
	}
	if o.step < 1 || o.step > 1000 {
		return o, fmt.Errorf("-step %d: it is from 1 to 1000", o.step)
	}
	o.scale = attack.Long
	if o.short {
		o.scale = attack.Short
	}
	var err error
	if o.pattern, err = regexp.Compile(*pattern); err != nil {
		return o, fmt.Errorf("-run: %w", err)
	}
	return o, nil
}

func run() (code int, err error) {
	o, err := parse()
	if err != nil {
		return 0, err
	}
	if o.list {
		for _, a := range attack.All() {
			fmt.Printf("%s\n  %s\n  must hold: %s\n", a.Name, a.What, a.Must)
		}
		for _, a := range leases.All() {
			fmt.Printf("%s\n  %s\n  must hold: %s; %s\n", a.Name, a.What, a.Must, leases.Always)
		}
		fmt.Printf("strangers\n  %s\n  must hold: %s\n", strangers.What, strangers.Must)
		return 0, nil
	}
	if o.wire == "auto" {
		if o.wire, code, err = inNamespace(); o.wire == "" {
			return code, err // the child has done it
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return attackAll(ctx, o)
}

// namespaceEnv is set in the process that runs in a namespace of its own.
const namespaceEnv = "ROCEATTACK_NAMESPACE"

// inNamespace runs this program again in a network namespace of its own, unless
// it is there already. The wire that it returns is empty if that has run.
func inNamespace() (wire string, code int, err error) {
	if os.Getenv(namespaceEnv) != "" {
		return "raw", 0, loopbackUp()
	}
	cmd, err := namespaced()
	if err == nil {
		cmd.Env = append(os.Environ(), namespaceEnv+"=1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "roceattack: no namespace of its own (%v): forged packets enter the link behind the socket\n", err)
		return "inject", 0, nil
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", exit.ExitCode(), nil
	}
	return "", 0, err
}

func attackAll(ctx context.Context, o options) (code int, err error) {
	r := attack.Report{Wire: map[string]string{
		"raw": "a raw socket", "inject": "injection behind the victim's socket"}[o.wire]}
	for _, a := range attack.All() {
		if !o.pattern.MatchString(a.Name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s: %s\n", a.Name, a.What)
		res, err := a.Run(ctx, attack.Options{Scale: o.scale, Raw: o.wire == "raw", Seed: o.seed})
		if err != nil {
			if ctx.Err() != nil {
				return 0, err
			}
			res.Broken = append(res.Broken, err.Error())
		}
		r.Attacks = append(r.Attacks, res)
	}
	if err := guess(o, &r); err != nil {
		return 0, err
	}
	if err := share(ctx, o, &r); err != nil {
		return 0, err
	}
	if o.daemon != "" && o.wire == "raw" && o.pattern.MatchString("strangers") {
		if r.Strangers, err = strangers.Run(ctx, o.daemon, o.short, func(s string) { fmt.Fprintln(os.Stderr, s) }); err != nil {
			return 0, err
		}
	}
	if len(r.Attacks)+len(r.Blind)+len(r.Strangers) == 0 {
		return 0, fmt.Errorf("-run %v matches no attack; -list lists them", o.pattern)
	}
	print := r.Text
	if o.json {
		print = r.JSON
	}
	if err := print(os.Stdout); err != nil {
		return 0, err
	}
	if r.Broken() > 0 {
		return 1, nil
	}
	return 0, nil
}

// share attacks the owner of a port.
func share(ctx context.Context, o options, r *attack.Report) error {
	if o.daemon == "" || o.wire != "raw" {
		return nil
	}
	scale := leases.Long
	if o.short {
		scale = leases.Short
	}
	for _, a := range leases.All() {
		if !o.pattern.MatchString(a.Name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s: %s\n", a.Name, a.What)
		res, err := a.Run(ctx, leases.Options{Daemon: o.daemon, Scale: scale, Seed: o.seed})
		if err != nil {
			return err
		}
		r.Attacks = append(r.Attacks, res)
	}
	return nil
}

// guess measures how many packets blind attacks need.
func guess(o options, r *attack.Report) error {
	for _, g := range attack.Guesses() {
		if !o.blind || !o.pattern.MatchString("blind/"+g.Name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "blind/%s: %s\n", g.Name, g.What)
		res, err := g.Blind(o.seed, o.step, 2000)
		if err != nil {
			return err
		}
		r.Blind = append(r.Blind, res)
	}
	for _, g := range attack.UnreliableGuesses() {
		if !o.blind || !o.pattern.MatchString("blind/"+g.Name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "blind/%s: %s\n", g.Name, g.What)
		res, err := g.Blind(o.seed, 20_000)
		if err != nil {
			return err
		}
		r.Blind = append(r.Blind, res)
	}
	return nil
}
