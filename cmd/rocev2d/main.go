// Command rocev2d is a RoCEv2 device as a service, in an ordinary process of an
// ordinary user. It exports memory that clients find by name and then read and
// write one-sidedly, answers the field's own tools (ibv_rc_pingpong,
// ib_write_bw, rping …), and shows what it does: a page in the browser,
// Prometheus metrics, JSON, captures. docs/operations.md describes it.
//
// Exit status: 0 when it was told to end, or --check found nothing; 1 when
// something failed; 2 when the command line or the configuration was wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gosoftroce/rocev2/cmd/build"
	"github.com/gosoftroce/rocev2/cmd/describe"
	"github.com/gosoftroce/rocev2/cmd/rocev2d/server"
	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/internal/closest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	p := &program{stdout: os.Stdout, stderr: os.Stderr, hangup: hangup, lookup: os.LookupEnv, stop: stop}
	os.Exit(p.run(ctx, os.Args[1:]))
}

// Exit statuses.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// program is the process, or that of a test.
type program struct {
	stdout, stderr io.Writer
	hangup         <-chan os.Signal
	lookup         func(string) (string, bool)
	stop           func() // further signals end the process at once

	file     string
	check    bool
	flags    []config.Override
	started  func(*server.Server) // of a test
	levelVar slog.LevelVar
}

// usageError is a mistake on the command line or in the configuration.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func (p *program) run(ctx context.Context, args []string) int {
	cmd := p.command()
	if slices.Equal(args, []string{"describe"}) { // not for people: help does not show it
		_ = describe.Print(p.stdout, cmd)
		return exitOK
	}
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(p.stderr, "rocev2d: %s\n", strings.TrimSuffix(line, "\n"))
		}
		return exitUsage
	}
	fmt.Fprintf(p.stderr, "rocev2d: %v\n", err)
	return exitFailure
}

func (p *program) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rocev2d",
		Short: "A RoCEv2 device as a service",
		Long: `rocev2d runs RoCEv2 devices as a service, as an ordinary user: it exports memory
that clients find by name ("rocev2 region ls HOST"), answers the field's own
tools (ibv_rc_pingpong, ib_write_bw, rping ...), and shows what it does in a
browser, to Prometheus, and as JSON.

A flag comes before the environment, and the environment before the file. The
example rocev2d.example.toml has every setting. SIGHUP has the file read again.
SIGTERM lets transfers finish and disconnects; a second one ends at once.`,
		Example: `  rocev2d                                                    the first address of this host, all targets
  rocev2d --device 127.0.0.1 --region 'scratch=64MiB;write'  some memory for this host
  rocev2d --config /etc/rocev2d.toml --check                 say what is wrong with a file`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("rocev2d takes no arguments, but got %q: --device names an address or interface, --config a file", args[0])}
			}
			return nil
		},
		SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.main(cmd.Context()) },
	}
	cmd.SetOut(p.stdout)
	cmd.SetErr(p.stderr)
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var none *pflag.NotExistError
		if errors.As(err, &none) {
			var names []string
			cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
			err = fmt.Errorf("%w%s", err, closest.Flag(none.GetSpecifiedName(), none.GetSpecifiedShortnames(), names))
		}
		return usageError{fmt.Errorf("%w; \"rocev2d --help\" lists the flags", err)}
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&p.file, "config", "", "configuration `file` (environment ROCEV2D_CONFIG)")
	fs.BoolVar(&p.check, "check", false, "check the configuration, say what it means, and end")
	for i := range config.Overrides {
		if o := &config.Overrides[i]; !o.Secret {
			fs.Var(&overrideFlag{p, o.Name}, o.Name, o.Help+" (environment "+o.Environment()+")")
		}
	}
	cmd.Version = build.Read().Text("rocev2d")
	cmd.SetVersionTemplate("{{.Version}}")
	return cmd
}

// overrideFlag is a flag that stands for a setting.
type overrideFlag struct {
	p    *program
	name string
}

var _ pflag.Value = (*overrideFlag)(nil)

func (f *overrideFlag) String() string { return "" }
func (f *overrideFlag) Type() string   { return "value" }

func (f *overrideFlag) Set(v string) error {
	f.p.flags = append(f.p.flags, config.Override{Name: f.name, Value: v, From: "flag --" + f.name})
	return nil
}

// load reads the configuration.
func (p *program) load() (*config.Config, error) {
	file := p.file
	if file == "" {
		file, _ = p.lookup("ROCEV2D_CONFIG")
	}
	return config.Load(file, append(config.FromEnvironment(p.lookup), p.flags...))
}

func (p *program) main(ctx context.Context) error {
	cfg, err := p.load()
	if err != nil {
		return usageError{err}
	}
	if p.check {
		if err := server.Check(ctx, cfg, nil); err != nil {
			return usageError{err}
		}
		return p.explain(cfg)
	}
	log := p.logger(cfg)
	s, err := server.Start(ctx, cfg, server.Options{Log: log, Level: &p.levelVar, Version: build.Read().Short()})
	if err != nil {
		return err
	}
	log.Info("ready", "version", build.Read().Short(), "config", cfg.File)
	notify("READY=1")
	if p.started != nil {
		p.started(s)
	}
	for {
		select {
		case <-p.hangup:
			p.reload(s, log)
		case err := <-s.Failed():
			return errors.Join(err, p.shutdown(s, log))
		case <-ctx.Done():
			return p.shutdown(s, log)
		}
	}
}

func (p *program) logger(cfg *config.Config) *slog.Logger {
	p.levelVar.Set(cfg.Log.Level)
	o := &slog.HandlerOptions{Level: &p.levelVar}
	if cfg.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(p.stderr, o))
	}
	return slog.New(slog.NewTextHandler(p.stderr, o))
}

// reload reads the configuration again. What is wrong with it is told, and
// changes nothing.
func (p *program) reload(s *server.Server, log *slog.Logger) {
	notify("RELOADING=1")
	defer notify("READY=1")
	next, err := p.load()
	if err != nil {
		log.Error("the configuration was not reloaded: nothing has changed", "error", err)
		return
	}
	restart, err := s.Reload(next)
	if err != nil {
		log.Error("the configuration was not reloaded as a whole", "error", err)
	}
	for _, name := range restart {
		log.Warn("this setting has changed and needs a restart", "setting", name, "where", next.Where(name))
	}
	if err == nil {
		log.Info("reloaded", "config", next.File, "regions", len(next.Regions))
	}
}

// shutdown drains and ends. The time is bounded by the configuration.
func (p *program) shutdown(s *server.Server, log *slog.Logger) error {
	if p.stop != nil {
		p.stop() // the next signal ends the process
	}
	notify("STOPPING=1")
	limit := s.Config().Drain
	log.Info("draining", "at_most", limit)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		log.Warn("not everything had finished", "error", err)
	}
	log.Info("ended")
	return nil
}

// explain says what a configuration means.
func (p *program) explain(c *config.Config) error {
	name := c.File
	if name == "" {
		name = "the configuration"
	}
	fmt.Fprintf(p.stdout, "%s: no mistakes\n", name)
	for i := range c.Devices {
		fmt.Fprintf(p.stdout, "device   %s", c.Devices[i].Address)
		if g := &c.Devices[i].Guard; g.Given() {
			fmt.Fprintf(p.stdout, ", %s", g.Describe())
		}
		fmt.Fprintln(p.stdout)
	}
	if len(c.Devices) == 0 {
		fmt.Fprintf(p.stdout, "device   the first address of this host\n")
	}
	for i := range c.Regions {
		r := &c.Regions[i]
		what := fmt.Sprintf("%d bytes", r.Size)
		if r.File != "" {
			what = r.File
		}
		how := ""
		if r.Secured() {
			how = ", over secured connections"
		}
		fmt.Fprintf(p.stdout, "region   %s: %s, %s, for %s%s\n", r.Name, what, r.Access, who(r), how)
	}
	fmt.Fprintf(p.stdout, "tls      %s\n", tlsText(&c.TLS))
	fmt.Fprintf(p.stdout, "admin    %s\n", orNone(c.Admin.Listen))
	fmt.Fprintf(p.stdout, "health   %s\n", orNone(c.Admin.Health))
	return nil
}

// tlsText says how connections are secured.
func tlsText(t *config.TLS) string {
	switch leaf := t.Leaf(); {
	case !t.Given():
		return "none: clients of regions are not secured, but as their devices are"
	case leaf == nil:
		return "by the secret of " + t.PSK
	case t.ServerOnly:
		return fmt.Sprintf("%s, until %v; clients need no certificate", t.Cert, leaf.NotAfter.UTC())
	default:
		return fmt.Sprintf("%s, until %v; clients by %s", t.Cert, leaf.NotAfter.UTC(), t.CA)
	}
}

func who(r *config.Region) string {
	switch {
	case r.Any:
		return "everybody"
	case len(r.Allow)+len(r.Names) == 0:
		return "this host alone"
	}
	var list []string
	for _, p := range r.Allow {
		list = append(list, p.String())
	}
	for _, n := range r.Names {
		list = append(list, string(n))
	}
	return strings.Join(list, ", ")
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
