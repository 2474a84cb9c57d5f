package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/observe/doctor"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/perftest"
	"github.com/gosoftroce/rocev2/transport/keychannel"
	"github.com/gosoftroce/rocev2/transport/udp"
	"github.com/gosoftroce/rocev2/verbs"
)

// doctorFlags are the flags of doctor.
type doctorFlags struct {
	device  string
	count   int
	timeout float64
	rate    bool
	port    int
	json    bool
}

func newDoctor(io streams) *cobra.Command {
	f := doctorFlags{count: 20, timeout: 1, port: interop.DefaultPort}
	cmd := &cobra.Command{
		Use:   "doctor [PEER]",
		Short: "Find out what stops RoCEv2 on this host, or on the way to a peer",
		Long: `Look at this host for what stops people: who has UDP port 4791, addresses and
GIDs, the interface's MTU, the kernel's RDMA beside us, firewalls, dropped
datagrams, limits of buffers, offloads, privileges, IPv6, reverse path filters.
Each finding says what it means and what to do. Nothing is changed.

With a PEER the way to it is tested: whether it answers and how fast, loss, which
path MTU fits, and where it is silent, whether one side is secured and the other
is not, or there are no keys. With --rate, doctor also measures a second of RDMA WRITE
against a server there: rocev2d, or rocev2 perf write_bw.

Exit status: 1 if there is a problem, else 0, also with warnings.`,
		Example: "  rocev2 doctor\n  rocev2 doctor --json -d eth0\n  rocev2 doctor 192.0.2.7",
		Args:    atMostOne("peer"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, first(args)); err != nil {
				return err
			}
			return f.run(cmd.Context(), io, first(args))
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.VarP(deviceFlag{&f.device}, "device", "d", deviceUsage)
	fs.IntVarP(&f.count, "count", "c", f.count, "pings to the peer")
	fs.Float64VarP(&f.timeout, "timeout", "W", f.timeout, "seconds to wait for an answer of the peer")
	fs.BoolVar(&f.rate, "rate", false, "measure the rate against a write_bw server on the peer")
	fs.IntVarP(&f.port, "port", "p", f.port, "TCP port of that server")
	fs.BoolVar(&f.json, "json", false, "print the findings as a JSON array")
	return cmd
}

func (f *doctorFlags) check(cmd *cobra.Command, peer string) error {
	if peer == "" {
		for _, name := range []string{"count", "timeout", "rate", "port"} {
			if cmd.Flags().Changed(name) {
				return usagef("--%s is for a peer: name one", name)
			}
		}
	}
	if f.count < 1 || f.count > 1000 {
		return usagef("-c %d: it must be between 1 and 1000", f.count)
	}
	return checkPort(f.port)
}

// errProblems says that a problem was found.
var errProblems = errors.New("there are problems: see above")

func (f *doctorFlags) run(ctx context.Context, io streams, peer string) error {
	var show func(doctor.Finding)
	if !f.json {
		show = func(x doctor.Finding) { printFinding(io, x) }
	}
	var list []doctor.Finding
	var err error
	if peer == "" {
		list, err = f.host(ctx, show)
	} else {
		list, err = f.peer(ctx, io, peer, show)
	}
	if err != nil {
		return err
	}
	if f.json {
		if err := json.NewEncoder(io.out).Encode(list); err != nil {
			return err
		}
	} else if err := summary(io, list); err != nil {
		return err
	}
	if doctor.Worst(list) == doctor.Problem {
		return errProblems
	}
	return nil
}

func (f *doctorFlags) host(ctx context.Context, show func(doctor.Finding)) ([]doctor.Finding, error) {
	c := doctor.Config{OnFinding: show}
	if f.device != "" {
		addr, err := verbs.ResolveAddr(f.device)
		if err != nil {
			return nil, err
		}
		c.Device = addr
	}
	return doctor.Run(ctx, c)
}

// peer tests the way to a peer.
func (f *doctorFlags) peer(ctx context.Context, io streams, name string, show func(doctor.Finding)) ([]doctor.Finding, error) {
	timeout, err := seconds("-W", f.timeout)
	if err != nil {
		return nil, err
	}
	peer, err := resolvePeer(ctx, name, f.device)
	if err != nil {
		return nil, err
	}
	c := doctor.PeerConfig{Peer: peer, Count: f.count, Timeout: timeout, OnFinding: show,
		NoRate: "not asked for: --rate measures against rocev2d there, or against a server that you start there: rocev2 perf write_bw"}
	dev, p, err := openPinger(io, f.device, peer)
	if err == nil {
		defer dev.Close()
		defer p.Close()
		c.Pinger, c.Local = p, dev.Addr()
		_, c.Sealed = dev.GuardCounters()
		c.KeyHosts = dev.KeyHosts
	} else {
		c.WhyNoPing = err
		if c.Local, err = localFor(f.device, peer); err != nil {
			return nil, err
		}
	}
	if ifi, ok := udp.InterfaceOf(c.Local); ok {
		c.MTU = ifi.MTU
	}
	c.Connect = func(ctx context.Context) error {
		conn, err := interop.Dial(ctx, c.Local, peer.String(), keychannel.Port)
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	if c.Path, c.WhyNoPath = doctor.OpenPath(c.Local, peer); c.Path != nil {
		defer c.Path.Close()
	}
	if f.rate && dev != nil {
		c.Rate = func(ctx context.Context) (string, error) { return f.measure(ctx, dev, peer) }
	}
	return doctor.RunPeer(ctx, c)
}

// rateTime is how long the rate is measured.
const rateTime = time.Second

// measure runs write_bw against a server on the peer.
func (f *doctorFlags) measure(ctx context.Context, dev *verbs.Device, peer netip.Addr) (string, error) {
	conn, err := interop.Dial(ctx, dev.Addr(), peer.String(), f.port)
	if err != nil {
		return "", fmt.Errorf("%w: %w", doctor.ErrNoServer, err)
	}
	list, err := perftest.Run(ctx, dev, conn, interop.Client, perftest.Config{
		Test: perftest.Test{Verb: perftest.Write, Kind: perftest.Bandwidth}, Duration: rateTime, IdleTimeout: 10 * time.Second, Peers: interop.PeerAt(netip.PrefixFrom(peer, peer.BitLen())),
	})
	if err != nil || len(list) == 0 {
		return "", err
	}
	r := list[len(list)-1]
	return fmt.Sprintf("%.2f Gb/s of RDMA WRITE, messages of %d bytes, path MTU %d", r.Average*8/1e9, r.Size, r.MTU), nil
}

var findingMarks = map[doctor.Status]string{doctor.OK: " ok ", doctor.Warning: "WARN", doctor.Problem: "FAIL", doctor.NotChecked: " -- "}

func printFinding(io streams, f doctor.Finding) {
	fmt.Fprintf(io.out, "[%s] %s: %s\n", findingMarks[f.Status], strings.TrimSpace(f.Check+" "+f.Subject), f.Text)
	if f.Advice != "" {
		fmt.Fprintf(io.out, "       %s\n", f.Advice)
	}
	if f.Command != "" {
		fmt.Fprintf(io.out, "       $ %s\n", f.Command)
	}
}

func summary(io streams, list []doctor.Finding) error {
	n := make(map[doctor.Status]int)
	for _, f := range list {
		n[f.Status]++
	}
	_, err := fmt.Fprintf(io.out, "%d ok, %d warnings, %d problems, %d not checked\n", n[doctor.OK], n[doctor.Warning], n[doctor.Problem], n[doctor.NotChecked])
	return err
}
