package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/observe/doctor"
	"github.com/gosoftroce/rocev2/observe/doctor/ping"
	"github.com/gosoftroce/rocev2/observe/doctor/probe"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/transport/udp"
	"github.com/gosoftroce/rocev2/verbs"
)

// onePeer is the rule for commands that need a peer.
func onePeer(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%s needs the name or the address of one peer", cmd.Name())
	}
	return nil
}

// resolvePeer finds the address of a peer, of the IP version of the device if
// that was chosen.
func resolvePeer(ctx context.Context, name, device string) (netip.Addr, error) {
	network := "ip"
	if device != "" {
		local, err := verbs.ResolveAddr(device)
		if err != nil {
			return netip.Addr{}, err
		}
		if network = "ip6"; local.Is4() {
			network = "ip4"
		}
	}
	if a, err := netip.ParseAddr(name); err == nil {
		return a.Unmap(), nil
	}
	list, err := net.DefaultResolver.LookupNetIP(ctx, network, name)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the address of %q: %w", name, err)
	}
	for _, a := range list {
		if a.Unmap().Is4() {
			return a.Unmap(), nil
		}
	}
	return list[0], nil
}

// seconds reads a number of seconds, as ping has them.
func seconds(flag string, v float64) (time.Duration, error) {
	if !(v > 0 && v <= math.MaxInt32) {
		return 0, usagef("%s %v: it must be a positive number of seconds", flag, v)
	}
	return time.Duration(v * float64(time.Second)), nil
}

// pingFlags are the flags of ping.
type pingFlags struct {
	device            string
	count             int
	interval, timeout float64
	quiet, json       bool
}

func newPing(io streams) *cobra.Command {
	f := pingFlags{interval: 1, timeout: 1}
	cmd := &cobra.Command{
		Use:   "ping PEER",
		Short: "Ask a RoCEv2 peer for answers, and measure them",
		Long: `Ask any RoCEv2 peer for answers, as ibping does, but without a program there: a
management datagram (SIDR_REQ) goes to its queue pair 1 and asks for a service
that nobody can have. The connection manager of a kernel, of an adapter's host
or of rocev2d answers that there is none. A kernel needs its module rdma_cm.

The device is used by ping alone: no other process has it meanwhile. Without an
answer, ping says what it has found out about that. It ends with status 1 then.`,
		Example: "  rocev2 ping 192.0.2.7\n  rocev2 ping -c 10 -i 0.2 -d eth0 192.0.2.7",
		Args:    onePeer,
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), io, args[0]) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.VarP(deviceFlag{&f.device}, "device", "d", deviceUsage)
	fs.IntVarP(&f.count, "count", "c", 0, "requests to send; 0 means until interrupted")
	fs.Float64VarP(&f.interval, "interval", "i", f.interval, "seconds between two requests")
	fs.Float64VarP(&f.timeout, "timeout", "W", f.timeout, "seconds to wait for an answer")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "print the statistics only")
	fs.BoolVar(&f.json, "json", false, "print the statistics as a JSON object")
	refuse(cmd, []foreign{{name: "size", short: "s", value: true, why: "a management datagram has 256 bytes (IBTA 13.4.2); doctor PEER and trace find out what larger packets fit"}})
	return cmd
}

func (f *pingFlags) run(ctx context.Context, io streams, name string) error {
	interval, err := seconds("-i", f.interval)
	if err != nil {
		return err
	}
	timeout, err := seconds("-W", f.timeout)
	if err != nil {
		return err
	}
	if f.count < 0 {
		return usagef("-c %d: it must be 0 or more", f.count)
	}
	peer, err := resolvePeer(ctx, name, f.device)
	if err != nil {
		return err
	}
	dev, p, err := openPinger(io, f.device, peer)
	if err != nil {
		return err
	}
	defer dev.Close()
	defer p.Close()
	c := ping.Config{Count: f.count, Interval: interval, Timeout: timeout}
	if !f.quiet && !f.json {
		fmt.Fprintf(io.out, "RoCEv2 ping %v from %v: SIDR_REQ of %d bytes to queue pair 1\n", peer, dev.Addr(), mad.Len)
		c.OnReply = func(r ping.Reply) {
			fmt.Fprintf(io.out, "%d bytes from %v: seq=%d ttl=%d time=%s ms\n", r.Bytes, peer, r.Seq, r.HopLimit, millis(r.RTT))
		}
		c.OnLost = func(seq int) { fmt.Fprintf(io.out, "no answer to seq=%d within %v\n", seq, timeout) }
	}
	s, err := p.Run(ctx, c)
	if err != nil {
		return err
	}
	if err := f.report(io, peer, &s); err != nil || s.Received > 0 || ctx.Err() != nil {
		return err
	}
	return noAnswer(ctx, dev.Addr(), peer)
}

func millis(d time.Duration) string { return fmt.Sprintf("%.3f", float64(d)/1e6) }

func (f *pingFlags) report(io streams, peer netip.Addr, s *ping.Statistics) error {
	if f.json {
		return printJSON(io.out, struct {
			Peer netip.Addr `json:"peer"`
			*ping.Statistics
			Loss float64 `json:"loss"`
		}{peer, s, s.Loss()})
	}
	_, err := fmt.Fprintf(io.out, "\n--- %v RoCEv2 ping statistics ---\n%d requests, %d answers, %.4g%% loss, time %d ms\n",
		peer, s.Sent, s.Received, 100*s.Loss(), s.Elapsed.Milliseconds())
	if err == nil && s.Received > 0 {
		_, err = fmt.Fprintf(io.out, "rtt min/avg/max/mdev = %s/%s/%s/%s ms\n", millis(s.Min), millis(s.Avg), millis(s.Max), millis(s.MDev))
	}
	return err
}

// openPinger opens the device and a pinger on it.
func openPinger(io streams, device string, peer netip.Addr) (*verbs.Device, *ping.Pinger, error) {
	dev, err := openTowards(io, device, peer)
	if err != nil {
		return nil, nil, err
	}
	p, err := ping.New(dev, peer)
	if err != nil {
		dev.Close()
		return nil, nil, err
	}
	return dev, p, nil
}

// openTowards opens a device to ask a peer from. If the peer is on this host,
// that is a free loopback address.
func openTowards(io streams, device string, peer netip.Addr) (*verbs.Device, error) {
	_, here := udp.InterfaceOf(peer)
	if here {
		free, err := links(peer.String())
		if err == nil && free[0].Free {
			return nil, fmt.Errorf("%v is an address of this host, and no process has its UDP port %d: start a rocev2 server or rocev2d there (-d %v)", peer, verbs.UDPPort, peer)
		}
	}
	if !here || device != "" {
		return openDevice(io, device, peer.String(), openPlain)
	}
	addr := netip.IPv6Loopback()
	if peer.Is4() {
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	for range 32 {
		dev, err := openPlain(addr)
		if err == nil {
			fmt.Fprintf(io.err, "device %v (the peer is on this host; -d chooses another)\n", addr)
		}
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || addr.Is6() {
			return dev, err
		}
		addr = addr.Next()
	}
	return nil, fmt.Errorf("no loopback address has a free UDP port %d to ask %v from: name a device (-d)", verbs.UDPPort, peer)
}

// noAnswer says why there is none.
func noAnswer(ctx context.Context, local, peer netip.Addr) error {
	path, err := doctor.OpenPath(local, peer)
	if errors.Is(err, probe.ErrUnsupported) {
		return fmt.Errorf("%v does not answer (why cannot be found out here: %w)", peer, err)
	}
	if err != nil {
		return err
	}
	defer path.Close()
	why, err := doctor.Explain(ctx, path, time.Second)
	if err != nil {
		return err
	}
	return fmt.Errorf("%v does not answer: %v", peer, why)
}
