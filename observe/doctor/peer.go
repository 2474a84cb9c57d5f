package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/observe/doctor/ping"
	"github.com/gosoftroce/rocev2/observe/doctor/probe"
	"github.com/gosoftroce/rocev2/transport/keychannel"
)

// PeerConfig says how the way to a peer is tested.
type PeerConfig struct {
	Peer  netip.Addr
	Local netip.Addr // packets leave from
	MTU   int        // bytes of an IP packet that the own interface carries

	Pinger    PingRunner // nil if the device cannot be had
	WhyNoPing error      // and why
	Path      *Path      // nil if the system shows no ICMP errors
	WhyNoPath error      // and why

	Count    int           // pings; 0 means 20
	Interval time.Duration // between them; 0 means 50 ms
	Timeout  time.Duration // for each answer; 0 means 1 s

	// Rate measures the rate to a server on the peer, and says what it is.
	// If nil, NoRate says why it is not measured.
	Rate   func(context.Context) (string, error)
	NoRate string

	// Sealed says that all packets of the own device are sealed, KeyHosts
	// with which hosts there are keys.
	Sealed   bool
	KeyHosts func() []netip.Addr
	// Connect connects to where the peer agrees on keys, and closes the
	// connection. Nil asks nothing.
	Connect func(context.Context) error

	OnFinding func(Finding) // if set, is called for each finding as it comes

	methods []Method // tests: those of Path
}

// PingRunner asks a peer a number of times: a *ping.Pinger.
type PingRunner interface {
	Run(context.Context, ping.Config) (ping.Statistics, error)
}

// RunPeer tests the way to a peer: whether it answers, how fast, how much is
// lost, and which packets fit. The error is that ctx has ended, or that this
// host does not send.
func RunPeer(ctx context.Context, c PeerConfig) ([]Finding, error) {
	c.Count, c.Interval, c.Timeout = cmp.Or(c.Count, 20), cmp.Or(c.Interval, 50*time.Millisecond), cmp.Or(c.Timeout, time.Second)
	if c.Path != nil {
		c.methods = c.Path.methods()
	}
	p := &peerChecks{PeerConfig: c, report: report{found: c.OnFinding}}
	for _, check := range []func(context.Context) error{p.ping, p.sizes, p.rate} {
		if err := check(ctx); err != nil {
			return p.list, err
		}
	}
	return p.list, nil
}

type peerChecks struct {
	PeerConfig
	report
}

func (p *peerChecks) ping(ctx context.Context) error {
	subject := p.Peer.String()
	if p.Pinger == nil {
		p.add(Finding{Check: "ping", Subject: subject, Status: NotChecked, Text: fmt.Sprintf("the device cannot be had: %v", p.WhyNoPing)})
		return nil
	}
	s, err := p.Pinger.Run(ctx, ping.Config{Count: p.Count, Interval: p.Interval, Timeout: p.Timeout})
	if err != nil || ctx.Err() != nil {
		return cmp.Or(err, context.Cause(ctx))
	}
	if s.Received == 0 {
		return p.silent(ctx)
	}
	if p.Sealed {
		p.ok("sealed", subject, "the requests and their answers were sealed")
	}
	p.ok("ping", subject, "RoCEv2 is there: %d of %d requests answered, round trip %v at least, %v on average, %v at most", s.Received, s.Sent,
		s.Min.Round(time.Microsecond), s.Avg.Round(time.Microsecond), s.Max.Round(time.Microsecond))
	if s.Loss() == 0 {
		p.ok("loss", subject, "none of %d requests or their answers was lost", s.Sent)
		return nil
	}
	p.add(Finding{Check: "loss", Subject: subject, Status: Warning, Text: fmt.Sprintf("%d of %d requests or their answers were lost", s.Sent-s.Received, s.Sent),
		Advice: "look for errors of interfaces on both sides and of the switches between them; connections work, and go slower", Command: "ip -s link"})
	return nil
}

// silent says why the peer does not answer.
func (p *peerChecks) silent(ctx context.Context) error {
	f := Finding{Check: "ping", Subject: p.Peer.String(), Status: Problem, Text: fmt.Sprintf("none of %d requests was answered", p.Count)}
	if p.methods != nil {
		why, err := explain(ctx, p.methods, p.Timeout)
		if err != nil {
			return err
		}
		f.Text += ": " + why.Text
		f.Advice = why.Advice
	}
	if k, ok := p.keys(ctx); ok {
		p.add(k)
		if k.Status == Problem { // that is why
			f.Advice = "see what is said of keys"
		}
	}
	p.add(f)
	return nil
}

// keys says whether a peer is silent because one side secures its device, and
// the other one does not, or there are no keys.
func (p *peerChecks) keys(ctx context.Context) (f Finding, ok bool) {
	if p.Connect == nil {
		return f, false
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	err := p.Connect(ctx)
	f = Finding{Check: "keys", Subject: p.Peer.String(), Status: Problem}
	has := p.KeyHosts != nil && slices.Contains(p.KeyHosts(), p.Peer.Unmap().WithZone(""))
	at := fmt.Sprintf("TCP port %d", keychannel.Port)
	refused := errors.Is(err, syscall.ECONNREFUSED)
	switch {
	case !p.Sealed && err == nil:
		f.Text = "the peer takes connections at " + at + ", where hosts agree on keys: its device is secured, it seems, and the one here is not"
		f.Advice = "secure this device, too (docs/secure.md, A whole device)"
	case !p.Sealed:
		return f, false
	case refused:
		f.Text = "the device here is secured, and the peer takes no connections at " + at + ": its device is not secured, or the process that secures it does not run"
		f.Advice = "secure the device of the peer, too (docs/secure.md, A whole device), or start its rocev2d; another port is there where the configuration says so"
	case err != nil:
		f.Text = fmt.Sprintf("the device here is secured, and cannot connect to %s of the peer to agree on keys: %v", at, err)
		f.Advice = "have firewalls let it pass, both ways"
	case !has:
		f.Text = "both devices are secured, and there are no keys: one side refuses the other"
		f.Advice = "the logs of rocev2d of both sides, and /api/v1/devices, say why: docs/secure.md lists the errors"
	default:
		f.Status = OK
		f.Text = "there are keys with the peer, and it takes connections at " + at
	}
	return f, true
}

func (p *peerChecks) sizes(ctx context.Context) error {
	subject := p.Peer.String()
	if p.methods == nil {
		p.notChecked("path mtu", subject, "packets of each size: %v", cmp.Or(p.WhyNoPath, probe.ErrUnsupported))
		return nil
	}
	r, err := Sizes(ctx, p.Peer, p.MTU, p.methods, p.Timeout)
	if err != nil {
		return err
	}
	own := pathMTU(p.Peer, p.MTU)
	f := Finding{Check: "path mtu", Subject: subject}
	switch {
	case r.Method == "":
		f.Status, f.Text = NotChecked, "the peer shows by none of UDP port unreachable and ICMP echo that packets arrive: it, or a firewall, keeps silent"
		f.Advice = "allow ICMP, or compare the speeds of rocev2 perf write_bw with -m 1024 and -m 4096"
	case r.PathMTU == 0:
		f.Status, f.Text = Problem, "no path MTU fits: "+r.note()
		f.Advice = "raise the MTU of the interface that is named"
	case r.PathMTU < own && r.Lost:
		f.Status = Problem
		f.Text = fmt.Sprintf("packets with a path MTU of %d come through (%s), larger ones vanish without a word: %s. The own interface carries %d, so connections with it hang", r.PathMTU, r.Method, r.note(), own)
		f.Advice = fmt.Sprintf("a switch, a tunnel or a firewall on the way carries less, on one of several ways perhaps: raise its MTU, or use a path MTU of %d (-m %d)", r.PathMTU, r.PathMTU)
	case r.PathMTU < own:
		f.Status = Warning
		f.Text = fmt.Sprintf("a path MTU of %d fits (%s), less than the own interface carries (%d): %s", r.PathMTU, r.Method, own, r.note())
		f.Advice = fmt.Sprintf("use it on both sides (-m %d), or raise the MTU on the way", r.PathMTU)
	default:
		f.Text = fmt.Sprintf("a path MTU of %d fits, all that the own interface carries (%s)", r.PathMTU, r.Method)
	}
	p.add(f)
	return nil
}

// note is what was said of the smallest size that does not fit.
func (r *SizeResult) note() string {
	for i := len(r.Sizes) - 1; i >= 0; i-- {
		if s := r.Sizes[i]; !s.Fits {
			return fmt.Sprintf("%d bytes: %s", s.Bytes, s.Note)
		}
	}
	return "nothing"
}

func (p *peerChecks) rate(ctx context.Context) error {
	subject := p.Peer.String()
	if p.Rate == nil {
		p.notChecked("rate", subject, "%s", cmp.Or(p.NoRate, "no server on the peer waits for it"))
		return nil
	}
	text, err := p.Rate(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ErrNoServer):
		p.notChecked("rate", subject, "%v", err)
	case err != nil:
		p.add(Finding{Check: "rate", Subject: subject, Status: Problem, Text: fmt.Sprintf("the measurement failed: %v", err)})
	default:
		p.ok("rate", subject, "%s", text)
	}
	return nil
}

// ErrNoServer is wrapped by the error of PeerConfig.Rate where the peer has no
// server to measure against.
var ErrNoServer = errors.New("no server waits for a measurement")
