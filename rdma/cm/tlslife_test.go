package cm_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// dropping loses a packet that comes, by its number.
type dropping struct {
	transport.Wrapper
	nth, seen int
}

func (d *dropping) Recv(b *transport.RxBatch) (int, error) {
	_, err := d.Link.Recv(b)
	b.Filter(func(*transport.RxPacket) bool {
		d.seen++
		return d.seen != d.nth
	})
	return b.Len(), err
}

// TestSecuredCloseInEveryState ends secured connections in each order: nothing
// is left of them, nor of their control connections.
func TestSecuredCloseInEveryState(t *testing.T) {
	t.Parallel()
	background := context.Background() // of no bubble
	for what, end := range map[string]func(l *cm.Listener, a, b *cm.Conn){
		"client first":       func(_ *cm.Listener, a, b *cm.Conn) { a.Close(); b.Close() },
		"server first":       func(_ *cm.Listener, a, b *cm.Conn) { b.Close(); a.Close() },
		"both at once":       func(_ *cm.Listener, a, b *cm.Conn) { go a.Close(); b.Close() },
		"both disconnect":    func(_ *cm.Listener, a, b *cm.Conn) { go a.Disconnect(background); b.Disconnect(background) },
		"queue pairs before": func(_ *cm.Listener, a, b *cm.Conn) { a.QP().Close(); b.QP().Close(); a.Close(); b.Close() },
		"listener before":    func(l *cm.Listener, a, b *cm.Conn) { l.Close(); l.Close(); a.Close(); b.Close() },
		"client only":        func(_ *cm.Listener, a, _ *cm.Conn) { a.Close() },
		"server only":        func(_ *cm.Listener, _, b *cm.Conn) { b.Close() },
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newSecuredNet(t, fabric.Config{})
			l, addr := n.server.listen(cm.ListenConfig{TLS: n.listen})
			got := n.server.serve(l, cm.AcceptConfig{})
			a, err := cm.Dial(n.client.context(), n.client.qp(verbs.RC), addr, cm.DialConfig{TLS: n.dial})
			must(t, err)
			b := (<-got).conn
			end(l, a, b)
			<-a.Done()
			<-b.Done()
			time.Sleep(30 * time.Second)
			t.Log(what)
			n.wantNothingLeft()
		})
	}
}

// TestSecuredDeviceCloses closes the device of one side: the other one hears of
// it.
func TestSecuredDeviceCloses(t *testing.T) {
	t.Parallel()
	for _, server := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := newSecuredNet(t, fabric.Config{})
			m := n.connect()
			gone, stays := n.client, m.server
			if server {
				gone, stays = n.server, m.client
			}
			gone.dev.Close()
			<-stays.Done()
			wantErr(t, "the other side", stays.Err(), cm.ErrDisconnected)
			time.Sleep(time.Minute)
			n.wantNothingLeft()
		})
	}
}

// TestSecuredPeerVanishes cuts the cable of the server: when the client ends
// the connection nothing is left of it in the end.
func TestSecuredPeerVanishes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecuredNet(t, fabric.Config{})
		m := n.connect()
		time.Sleep(time.Second) // nothing is on the way
		n.server.port.Cut()
		time.Sleep(time.Hour) // an idle connection does not notice
		must(t, m.client.Err())
		m.client.Close()
		time.Sleep(2 * time.Minute)
		if got := cm.Controls(n.client.dev); got != 0 || cm.IDs(n.client.dev) != 0 || cm.ReadStats(n.client.dev).Connections != 0 {
			t.Errorf("%d control connections, %d IDs, %+v", got, cm.IDs(n.client.dev), cm.ReadStats(n.client.dev))
		}
	})
}

// TestSecuredDialGivenUp gives dials up at any moment, and ends the listener
// at any moment.
func TestSecuredDialGivenUp(t *testing.T) {
	t.Parallel()
	for _, ending := range []string{"the dial", "the listener", "the device"} {
		t.Run(ending, func(t *testing.T) {
			t.Parallel()
			for after := time.Duration(0); after < 3*time.Millisecond; after += 70 * time.Microsecond {
				synctest.Test(t, func(t *testing.T) {
					n := newSecuredNet(t, fabric.Config{Port: fabric.PortConfig{Delay: 50 * time.Microsecond}})
					l, addr := n.server.listen(cm.ListenConfig{TLS: n.listen})
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					go func() {
						r, err := l.Accept(t.Context())
						if err != nil {
							return
						}
						if c, err := r.Accept(t.Context(), n.server.qp(verbs.RC), cm.AcceptConfig{}); err == nil {
							<-c.Done()
						}
					}()
					time.AfterFunc(after, func() {
						switch ending {
						case "the dial":
							cancel()
						case "the listener":
							l.Close()
						default:
							n.server.dev.Close()
						}
					})
					c, err := cm.Dial(ctx, n.client.qp(verbs.RC), addr, cm.DialConfig{TLS: n.dial, Retries: 2})
					if err == nil {
						must(t, c.Close())
					}
					time.Sleep(2 * time.Minute)
					n.wantNothingLeft()
				})
			}
		})
	}
}

// TestEachSecuredPacketLost loses each of the first packets of a secured
// connection once.
func TestEachSecuredPacketLost(t *testing.T) {
	t.Parallel()
	for side := range 2 {
		for lost := 1; lost < 30; lost++ {
			synctest.Test(t, func(t *testing.T) {
				n := newSecuredNet(t, fabric.Config{}, func(i int, l transport.Link) transport.Link {
					if i != side {
						return l
					}
					return &dropping{Wrapper: transport.Wrapper{Link: l}, nth: lost}
				})
				m := n.connect()
				n.echoOnce(m.client, m.server)
				must(t, m.client.Disconnect(n.client.context()))
				<-m.server.Done()
				wantErr(t, fmt.Sprintf("packet %d to side %d", lost, side), m.server.Err(), cm.ErrDisconnected)
				time.Sleep(time.Minute)
				n.wantNothingLeft()
			})
		}
	}
}

// TestSecuredRejected has a program reject: the reason is its own, and secret.
func TestSecuredRejected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecuredNet(t, fabric.Config{})
		l, addr := n.server.listen(cm.ListenConfig{TLS: n.listen})
		go func() {
			r, err := l.Accept(t.Context())
			if err == nil {
				err = r.Reject([]byte("a secret reason"))
			}
			if err != nil {
				t.Error(err)
			}
		}()
		_, err := cm.Dial(n.client.context(), n.client.qp(verbs.RC), addr, cm.DialConfig{TLS: n.dial})
		r := wantRejected(t, "the dial", err, cm.ReasonConsumer)
		wantBytes(t, "the reason", r.PrivateData, zeros("a secret reason", 148))
		time.Sleep(time.Second)
		n.wantNothingLeft()
		for _, cable := range n.cables {
			inClear(t, cable.Take())
		}
	})
}

// TestSecuredGreet has a listener that answers requests itself. What attackers
// send to the number that it has told, before there is a queue pair, does not
// reach that.
func TestSecuredGreet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecuredNet(t, fabric.Config{})
		l, addr := n.server.listen(cm.ListenConfig{TLS: n.listen})
		l.Greet(welcome)
		q := n.client.qp(verbs.RC)
		c, err := cm.Dial(n.client.context(), q, addr, cm.DialConfig{TLS: n.dial, PrivateData: []byte(secretOfDial)})
		must(t, err)
		n.forge(&rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, PKey: rocev2.DefaultPKey, DestQPN: c.Params().QPN, PSN: c.Params().PSN}, Payload: []byte("forged")})
		n.client.send(q, "early")
		r, err := l.Accept(n.server.context())
		must(t, err)
		if state, ok := r.ConnectionState(); !ok || r.QPN() == 0 || state.PeerCertificates[0].Subject.CommonName != "client" {
			t.Errorf("%v of queue pair %v", ok, r.QPN())
		}
		time.Sleep(time.Millisecond)
		s, err := n.server.adopt(r)
		must(t, err)
		if got := n.server.message(); got != "early" {
			t.Errorf("%q", got)
		}
		wantSealed(t, s.QP())
		n.echoOnce(c, s)
		must(t, c.Close())
		<-s.Done()
		l.Greet(nil) // and a program that is asked
		got := n.server.serve(l, cm.AcceptConfig{})
		c, err = cm.Dial(n.client.context(), n.client.qp(verbs.RC), addr, cm.DialConfig{TLS: n.dial})
		must(t, err)
		must(t, (<-got).err)
		_, err = cm.Dial(n.client.context(), n.client.qp(verbs.RC), addr, cm.DialConfig{})
		wantRejected(t, "a dial in clear", err, cm.ReasonConsumer)
		must(t, c.Close())
		time.Sleep(time.Minute)
		n.wantNothingLeft()
	})
}

// TestSecuredTerms has a server with a smaller path MTU, and a client that
// waits until it listens.
func TestSecuredTerms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecuredNet(t, fabric.Config{LinkMTU: 1300})
		wait := make(chan accepted, 1)
		go func() {
			time.Sleep(3 * time.Second)
			l, err := cm.Listen(n.server.dev, netip.MustParseAddrPort("192.0.2.2:7471"), cm.ListenConfig{TLS: n.listen})
			must(t, err)
			wait <- <-n.server.serve(l, cm.AcceptConfig{ResponderResources: verbs.Set(3)})
		}()
		c, err := cm.Dial(n.client.context(), n.client.qp(verbs.RC), netip.MustParseAddrPort("192.0.2.2:7471"), cm.DialConfig{
			TLS: n.dial, WaitForServer: true, NoECE: true, ResponderResources: verbs.Set(7), TrafficClass: 0x60, AckTimeout: 16, PathMTU: verbs.MTU512})
		must(t, err)
		s := <-wait
		must(t, s.err)
		a, b := c.QP().Query(), s.conn.QP().Query()
		if a.PathMTU != verbs.MTU512 || b.PathMTU != verbs.MTU512 || b.MaxDestRdAtomic != 3 || a.MaxDestRdAtomic != 7 || a.AV.TrafficClass != 0x60 || b.Timeout != 16 {
			t.Errorf("%+v\n%+v", a, b)
		}
		n.echoOnce(c, s.conn)
	})
}

// TestSecuredBySelf has a host dial itself, over IPv6.
func TestSecuredBySelf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		port, err := fabric.NewSwitch(fabric.Config{}).Attach(netip.MustParseAddr("2001:db8::1"))
		must(t, err)
		dev, err := verbs.OpenLink(port, verbs.Config{Sealing: true, Loopback: true})
		must(t, err)
		h := newHostOn(t, dev)
		n := &securedNet{client: h, server: h}
		n.configure(t, testcert.New(t), "2001:db8::1")
		l, addr := h.listen(cm.ListenConfig{TLS: n.listen})
		for range 3 {
			got := h.serve(l, cm.AcceptConfig{})
			c, err := cm.Dial(h.context(), h.qp(verbs.RC), addr, cm.DialConfig{TLS: n.dial})
			must(t, err)
			s := <-got
			must(t, s.err)
			wantSealed(t, c.QP())
			n.echoOnce(c, s.conn)
			must(t, c.Disconnect(h.context()))
			<-s.conn.Done()
			h.forget(c.QP())
			h.forget(s.conn.QP())
		}
		time.Sleep(time.Minute)
		n.wantNothingLeft()
	})
}

// TestSecuredXRC has an initiator dial and a target accept.
func TestSecuredXRC(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecuredNet(t, fabric.Config{})
		l, addr := n.server.listen(cm.ListenConfig{Type: verbs.XRCTarget, TLS: n.listen})
		domain, err := n.server.dev.OpenXRCD()
		must(t, err)
		target, err := n.server.pd.CreateQP(verbs.QPConfig{Type: verbs.XRCTarget, XRCD: domain})
		must(t, err)
		ended := make(chan error, 1)
		go func() {
			r, err := l.Accept(t.Context())
			must(t, err)
			c, err := r.Accept(t.Context(), target, cm.AcceptConfig{})
			must(t, err)
			ended <- c.Wait(context.WithoutCancel(t.Context()))
		}()
		q, err := n.client.pd.CreateQP(verbs.QPConfig{Type: verbs.XRCInitiator, SendCQ: n.client.cq})
		must(t, err)
		c, err := cm.Dial(n.client.context(), q, addr, cm.DialConfig{TLS: n.dial})
		must(t, err)
		wantSealed(t, q)
		wantSealed(t, target)
		srq, err := n.server.pd.CreateSRQ(verbs.SRQConfig{XRCD: domain, CQ: n.server.cq, MaxWR: 8})
		must(t, err)
		must(t, srq.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{n.server.mr.Slice(1<<15, 1<<10)}}))
		must(t, q.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte(secretText), Signaled: true, RemoteSRQN: srq.Number()}))
		if got := n.server.message(); got != secretText {
			t.Errorf("the server got %q", got)
		}
		must(t, c.Disconnect(n.client.context()))
		wantErr(t, "the target's end", <-ended, cm.ErrDisconnected)
		for _, cable := range n.cables {
			inClear(t, cable.Take())
		}
	})
}

// TestSecuredOverSockets has many dials at once over real sockets, to devices
// of several shards, at all listeners of a host.
func TestSecuredOverSockets(t *testing.T) {
	t.Parallel()
	authority := testcert.New(t)
	r := rand.Uint32()
	open := func(last byte) (*host, netip.Addr) {
		addr := netip.AddrFrom4([4]byte{127, byte(r>>16)%250 + 2, byte(r >> 8), last})
		dev, err := verbs.OpenAddr(addr, verbs.Config{Sealing: true, Shards: 2})
		if errors.Is(err, errors.ErrUnsupported) {
			dev, err = verbs.OpenAddr(addr, verbs.Config{Sealing: true})
		}
		must(t, err)
		return newHostOn(t, dev), addr
	}
	client, _ := open(2)
	server, at := open(3)
	other, _ := open(4)
	n := &securedNet{client: client, server: server}
	n.configure(t, authority, at.String())
	ls, err := cm.ListenAll([]*verbs.Device{server.dev, other.dev}, netip.AddrPort{}, cm.ListenConfig{TLS: n.listen})
	must(t, err)
	defer ls.Close()
	const dials = 24
	served := make(chan error, dials)
	go func() {
		for range dials {
			r, err := ls.Accept(server.context())
			if err != nil {
				served <- err
				continue
			}
			go func() {
				q, err := server.pd.CreateQP(verbs.QPConfig{SendCQ: server.cq, RecvCQ: server.cq})
				if err == nil {
					var c *cm.Conn
					if c, err = r.Accept(server.context(), q, cm.AcceptConfig{PrivateData: r.PrivateData()}); err == nil {
						err = c.Wait(server.context())
					}
				}
				served <- err
			}()
		}
	}()
	var all sync.WaitGroup
	for i := range dials {
		all.Go(func() {
			q, err := client.pd.CreateQP(verbs.QPConfig{SendCQ: client.cq, RecvCQ: client.cq})
			must(t, err)
			private := fmt.Sprintf("dial %d", i)
			c, err := cm.Dial(client.context(), q, ls.Addrs()[0].(*cm.Addr).AddrPort, cm.DialConfig{TLS: n.dial, PrivateData: []byte(private)})
			if err != nil {
				t.Error(err)
				return
			}
			if got := string(c.PrivateData()[:len(private)]); got != private {
				t.Errorf("%q, want %q", got, private)
			}
			if err := c.Disconnect(client.context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for range dials {
		wantErr(t, "the server's connection", <-served, cm.ErrDisconnected)
	}
}
