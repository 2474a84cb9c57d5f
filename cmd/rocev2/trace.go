package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/observe/doctor"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// traceFlags are the flags of trace.
type traceFlags struct {
	device        string
	hops, queries int
	timeout       float64
	json          bool
}

func newTrace(io streams) *cobra.Command {
	f := traceFlags{hops: 30, queries: 3, timeout: 1}
	cmd := &cobra.Command{
		Use:   "trace PEER",
		Short: "Show the way to a peer, and what fits through it",
		Long: `Show the way to a peer step by step, as tracepath does, without privileges:
packets to UDP port 4791 with rising hop limit, as large as came through so far.
Routers say where they are dropped, and what would fit. The peer, which does not
answer such packets, is asked by RoCEv2 ping; if another process has the device,
trace goes without that. What reaches the peer is no RoCEv2: it is dropped.

This needs Linux, which alone shows programs what routers say.`,
		Example: "  rocev2 trace 192.0.2.7",
		Args:    onePeer,
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), io, args[0]) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.VarP(deviceFlag{&f.device}, "device", "d", deviceUsage)
	fs.IntVarP(&f.hops, "max-hops", "m", f.hops, "give up after so many hops")
	fs.IntVar(&f.queries, "queries", f.queries, "packets to each hop")
	fs.Float64VarP(&f.timeout, "timeout", "W", f.timeout, "seconds to wait for an answer")
	fs.BoolVar(&f.json, "json", false, "print the way as a JSON object")
	return cmd
}

func (f *traceFlags) run(ctx context.Context, io streams, name string) error {
	timeout, err := seconds("-W", f.timeout)
	if err != nil {
		return err
	}
	if f.hops < 1 || f.hops > 255 {
		return usagef("-m %d: it must be between 1 and 255", f.hops)
	}
	if f.queries < 1 || f.queries > 10 {
		return usagef("--queries %d: it must be between 1 and 10", f.queries)
	}
	peer, err := resolvePeer(ctx, name, f.device)
	if err != nil {
		return err
	}
	c := doctor.TraceConfig{Peer: peer, MaxHops: f.hops, Queries: f.queries, Timeout: timeout}
	if !f.json {
		c.OnHop = func(h doctor.Hop) { fmt.Fprintln(io.out, hopLine(h)) }
	}
	r, err := f.trace(ctx, io, c)
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(io.out, struct {
			Peer netip.Addr `json:"peer"`
			doctor.TraceResult
		}{peer, r})
	}
	end := "the peer was not reached"
	if r.Reached {
		if end = fmt.Sprintf("%v is %d hops away", peer, len(r.Hops)); len(r.Hops) == 1 {
			end = fmt.Sprintf("%v is one hop away", peer)
		}
	}
	if r.MTU > 0 {
		end += fmt.Sprintf("; packets of %d bytes came as far as hops answer: path MTU %d", r.MTU, r.PathMTU)
	}
	_, err = fmt.Fprintln(io.out, end)
	return err
}

// trace opens what the trace needs, and makes it.
func (f *traceFlags) trace(ctx context.Context, io streams, c doctor.TraceConfig) (r doctor.TraceResult, err error) {
	var ask doctor.Pinger
	var local netip.Addr
	dev, p, err := openPinger(io, f.device, c.Peer)
	if err == nil {
		defer dev.Close()
		defer p.Close()
		ask, local = p, dev.Addr()
	} else {
		fmt.Fprintf(io.err, "without RoCEv2 ping: %v\n", err)
		if local, err = localFor(f.device, c.Peer); err != nil {
			return r, err
		}
	}
	if ifi, ok := udp.InterfaceOf(local); ok {
		c.MTU = ifi.MTU
	}
	path, err := doctor.OpenPath(local, c.Peer)
	if err != nil {
		return r, err
	}
	defer path.Close()
	return doctor.Trace(ctx, path.Port, ask, c)
}

// localFor returns the address that packets to a peer leave from.
func localFor(device string, peer netip.Addr) (netip.Addr, error) {
	if device == "" {
		return routeTo(peer.String())
	}
	links, err := links(device)
	if err != nil {
		return netip.Addr{}, err
	}
	return links[0].Addr, nil
}

func hopLine(h doctor.Hop) string {
	if !h.Addr.IsValid() {
		return strings.TrimSpace(fmt.Sprintf("%2d  *  %s", h.Hops, h.Note))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%2d  %v", h.Hops, h.Addr)
	for _, t := range h.RTTs {
		fmt.Fprintf(&b, "  %s ms", millis(t.Round(time.Microsecond)))
	}
	if h.MTU > 0 {
		fmt.Fprintf(&b, "  mtu %d", h.MTU)
	}
	if h.Note != "" {
		fmt.Fprintf(&b, "  (%s)", h.Note)
	}
	return b.String()
}
