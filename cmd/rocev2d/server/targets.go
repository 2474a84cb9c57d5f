package server

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/cmatose"
	"github.com/gosoftroce/rocev2/programs/interop/cmtime"
	"github.com/gosoftroce/rocev2/programs/interop/mckey"
	"github.com/gosoftroce/rocev2/programs/interop/rcopy"
	"github.com/gosoftroce/rocev2/programs/interop/rdmaclient"
	"github.com/gosoftroce/rocev2/programs/interop/rping"
	"github.com/gosoftroce/rocev2/programs/interop/rstream"
	"github.com/gosoftroce/rocev2/programs/interop/target"
	"github.com/gosoftroce/rocev2/programs/interop/udaddy"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// Port spaces, as they are shown.
const (
	spaceTCP     = "TCP"      // a port of TCP itself
	spaceRDMATCP = "RDMA TCP" // of the connection manager
	spaceRDMAUDP = "RDMA UDP"
	spaceGroup   = "group"
)

// Targets returns all targets that there are.
func Targets() []Target {
	return []Target{
		{Name: "perftest", Tools: sharing, Port: interop.DefaultPort, Space: spaceTCP, Serve: recognise(interop.RC)},
		{Name: "perftest_uc", Tools: []string{"-c UC of these"}, Space: spaceTCP, Serve: recognise(interop.UC)},
		{Name: "perftest_ud", Tools: []string{"-c UD of these"}, Space: spaceTCP, Serve: recognise(interop.UD)},
		{Name: "rping", Tools: []string{"rping"}, Port: rping.DefaultPort, Space: spaceRDMATCP, Request: serveRping},
		{Name: "ucmatose", Tools: []string{"ucmatose"}, Port: cmatose.DefaultPort, Space: spaceRDMATCP, Fits: likeUcmatose, Request: serveUcmatose},
		{Name: "rdma_server", Tools: []string{"rdma_client"}, Port: rdmaclient.DefaultPort, Space: spaceRDMATCP, Fits: likeRDMAClient, Request: serveRDMAClient},
		{Name: "cmtime", Tools: []string{"cmtime"}, Port: cmtime.DefaultPort, Space: spaceRDMATCP, Fits: likeCmtime, Request: serveCmtime},
		{Name: "rstream", Tools: []string{"rstream"}, Port: rstream.DefaultPort, Space: spaceRDMATCP, Fits: likeRsocket, Greet: greetStream, Request: serveRstream},
		{Name: "rcopy", Tools: []string{"rcopy"}, Port: rcopy.DefaultPort, Space: spaceRDMATCP, Serve: serveRcopy},
		{Name: "udaddy", Tools: []string{"udaddy"}, Port: udaddy.DefaultPort, Space: spaceRDMAUDP, Request: serveUdaddy},
		{Name: "conformance", Tools: []string{"rocev2 conformance"}, Space: spaceTCP, Serve: serveConformance},
		{Name: "mckey", Tools: []string{"mckey"}, Port: anyPort, Space: spaceGroup, Serve: serveMckey},
	}
}

// anyPort stands for a target that has no port; 0 would turn it off.
const anyPort = -1

// idle is how long a client may do nothing before it is ended.
const idle = time.Minute

// What tells apart the clients that share a port: the originals ask for
// different connections. The private data says nothing: three send none, and
// that of rsockets has a version first.

// likeRsocket: 40 bytes, of which the first is the version 1, and the receive
// queue has room.
func likeRsocket(_ cm.Params, b []byte) bool {
	return len(b) >= 40 && b[0] == 1 && (b[2] != 0 || b[3] != 0)
}

func plain(b []byte) bool { return len(bytes.TrimRight(b, "\x00")) == 0 }

// likeUcmatose: one READ each way, 5 retries.
func likeUcmatose(p cm.Params, private []byte) bool {
	return plain(private) && p.ResponderResources <= 1 && p.InitiatorDepth <= 1 && p.RetryCount == 5
}

// likeRDMAClient: as many READs as the library can have, 7 retries.
func likeRDMAClient(p cm.Params, private []byte) bool {
	return plain(private) && p.RetryCount == 7 && (p.ResponderResources > 1 || p.InitiatorDepth > 1)
}

// likeCmtime: one READ each way, and as many retries as the user says.
func likeCmtime(p cm.Params, private []byte) bool {
	return plain(private) && p.ResponderResources <= 1 && p.InitiatorDepth <= 1
}

// sharing are the tools that share the port of perftest.
var sharing = []string{"ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw", "ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_atomic_lat", "ibv_rc_pingpong", "ibv_srq_pingpong", "ibv_xsrq_pingpong"}

// recognise serves the ping-pongs and perftest, over a transport service where
// the client does not say its own.
func recognise(service interop.Service) func(context.Context, *Host) error {
	return func(ctx context.Context, h *Host) error {
		ln, err := interop.Listen(ctx, h.Device.Addr().WithZone("").String(), h.Port)
		if err != nil {
			return err
		}
		h.OnReady()
		g := newRecognised(h)
		c := target.Config{Service: service, MaxClients: h.Config.Clients, IdleTimeout: idle, OnBegin: g.begin, OnClient: g.end}
		if h.Config.Any {
			c.Peers = interop.AnyPeer
		}
		return target.Serve(ctx, h.Device, ln, c)
	}
}

// recognised are the clients of one port that are there. A connection is known
// by the address value itself, a pointer, and not by its text: a client that
// resets its connection can come again from the same port while the first
// connection is still being served.
type recognised struct {
	h     *Host
	mu    sync.Mutex
	there map[net.Addr]*Guest
}

func newRecognised(h *Host) *recognised {
	return &recognised{h: h, there: map[net.Addr]*Guest{}}
}

// begin records a client that has come. What it runs is known when it is done.
func (r *recognised) begin(addr net.Addr) error {
	g, err := r.h.Begin(addr)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.there[addr] = g
	return nil
}

// end records a client that is done, or that was refused.
func (r *recognised) end(c target.Client) {
	if !c.Began {
		r.h.Refused(c.Addr, c.Err)
		return
	}
	r.mu.Lock()
	g := r.there[c.Addr]
	delete(r.there, c.Addr)
	r.mu.Unlock()
	if c.Tool != "" {
		g.Is(c.Tool, 0)
	}
	g.End(resultOf(c), c.Err)
}

// resultOf says what a client has done. The rate is that of the messages, and
// the client was connected for longer: it sets up, and may end in silence.
func resultOf(c target.Client) string {
	result := fmt.Sprintf("%d messages of %d bytes over %v", c.Messages, c.Size, c.Service)
	if c.Messages == 0 && c.Size == 0 { // READs, which this side does not see
		result = fmt.Sprintf("served over %v", c.Service)
	}
	if c.Gbps > 0 {
		result += fmt.Sprintf(", %.2f Gb/s", c.Gbps)
	}
	return result + fmt.Sprintf("; connected for %v", round(c.Elapsed))
}

func serveRping(ctx context.Context, h *Host, r *cm.Request) (string, error) {
	res, err := rping.Handle(ctx, r, rping.Config{IdleTimeout: idle})
	return fmt.Sprintf("%d pings, %d bytes in %v", res.Pings, res.Bytes, round(res.Elapsed)), err
}

func serveUcmatose(ctx context.Context, h *Host, r *cm.Request) (string, error) {
	res, err := cmatose.Handle(ctx, r, cmatose.Config{IdleTimeout: idle})
	return fmt.Sprintf("%d messages sent, %d received in %v", res.Sent, res.Received, round(res.Elapsed)), err
}

func serveRDMAClient(ctx context.Context, h *Host, r *cm.Request) (string, error) {
	res, err := rdmaclient.Handle(ctx, r, rdmaclient.Config{IdleTimeout: idle})
	return fmt.Sprintf("%d messages sent, %d received in %v", res.Sent, res.Received, round(res.Elapsed)), err
}

func serveCmtime(ctx context.Context, h *Host, r *cm.Request) (string, error) {
	_, err := cmtime.Handle(ctx, r, cmtime.Config{IdleTimeout: idle})
	return "connected and disconnected", err
}

// streamConfig says what rstream runs: that which the original does without
// flags.
var streamConfig = rstream.Config{IdleTimeout: idle}

// streamGreeter says how their requests are accepted.
var streamGreeter = sync.OnceValue(func() *rstream.Server {
	s, _ := rstream.NewServer(streamConfig) // the defaults can be run
	return s
})

func greetStream(g *cm.Greeting) (cm.AcceptConfig, error) { return streamGreeter().Greet(g) }

// serveRstream serves one of the connections of a client. That it is the second
// one of a client, for bandwidth, only the server of all of them knows.
func serveRstream(ctx context.Context, h *Host, r *cm.Request) (string, error) {
	h.once.Do(func() { h.streams, _ = rstream.NewServer(streamConfig) }) // the defaults can be run
	begin := time.Now()
	err := h.streams.Handle(ctx, r)
	return "a series of tests in " + round(time.Since(begin)).String(), err
}

// serveRcopy takes files, if it is told where to.
func serveRcopy(ctx context.Context, h *Host) error {
	if h.Config.Root == "" {
		<-ctx.Done()
		return nil
	}
	return rcopy.Serve(ctx, h.Device, netip.AddrPortFrom(h.Device.Addr(), uint16(h.Port)), rcopy.Config{
		Root: h.Config.Root, MaxSize: uint64(h.Config.Largest), IdleTimeout: idle, OnListen: h.OnReady,
		OnFile: func(from, path string, r rcopy.Result) {
			h.Record(textAddr(from), "rcopy", time.Now().Add(-r.Elapsed), fmt.Sprintf("%s: %d bytes in %v", strconv.Quote(clip(path)), r.Bytes, round(r.Elapsed)), nil)
		},
		OnFailed: func(from string, why error) { h.Record(textAddr(from), "rcopy", time.Now(), "", why) },
	})
}

// textAddr is an address that is known as text.
type textAddr string

func (textAddr) Network() string  { return "rdma" }
func (a textAddr) String() string { return string(a) }

func serveUdaddy(ctx context.Context, h *Host, r *cm.Request) (string, error) {
	res, err := udaddy.Handle(ctx, r, udaddy.Config{})
	return fmt.Sprintf("%d datagrams sent, %d received in %v", res.Sent, res.Received, round(res.Elapsed)), err
}

// round leaves three digits or so.
func round(d time.Duration) time.Duration {
	for unit := time.Second; unit > time.Nanosecond; unit /= 10 {
		if d >= unit {
			return d.Round(unit / 100)
		}
	}
	return d
}

// groupAddr is a multicast group as the peer of a record: a receiver does not
// learn the sender's address.
type groupAddr struct {
	group  netip.Addr
	sender verbs.QPN
}

func (groupAddr) Network() string  { return "udp" }
func (g groupAddr) String() string { return fmt.Sprintf("group %v, sender QP %v", g.group, g.sender) }

// serveMckey is a member of the groups of the configuration, and records what
// is sent there.
func serveMckey(ctx context.Context, h *Host) error {
	var groups []netip.Addr
	for _, g := range h.Config.Groups {
		a, err := netip.ParseAddr(g)
		if err != nil {
			return err
		}
		if a.Is4() == h.Device.Addr().Is4() {
			groups = append(groups, a)
		}
	}
	h.OnReady()
	done := make(chan error, len(groups))
	for _, g := range groups {
		go func() { done <- h.listenToGroup(ctx, g) }()
	}
	<-ctx.Done()
	for range groups {
		if err := <-done; err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (h *Host) listenToGroup(ctx context.Context, group netip.Addr) error {
	for {
		res, err := mckey.Run(ctx, h.Device, mckey.Config{Group: group})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && res.Messages == 0 {
			h.records.problem(Problem{Device: h.Device.Addr().String(), Source: h.name, What: fmt.Sprintf("group %v: %v", group, err)})
			return err
		}
		if g, full := h.Begin(groupAddr{group, res.Sender}); full == nil {
			g.End(fmt.Sprintf("%d datagrams, %d bytes in %v", res.Messages, res.Bytes, round(res.Elapsed)), err)
		}
	}
}
