package cm_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// unequal makes two hosts whose interfaces differ in their MTU.
func unequal(t *testing.T, clientMTU, serverMTU int) (client, server *host) {
	t.Helper()
	sw := fabric.NewSwitch(fabric.Config{})
	var hosts []*host
	for addr, mtu := range map[string]int{"192.0.2.1": clientMTU, "192.0.2.2": serverMTU} {
		port, err := sw.AttachPort(netip.MustParseAddr(addr), fabric.PortConfig{LinkMTU: mtu})
		must(t, err)
		hosts = append(hosts, newHost(t, port))
	}
	if hosts[0].dev.Addr() != netip.MustParseAddr("192.0.2.1") {
		hosts[0], hosts[1] = hosts[1], hosts[0]
	}
	return hosts[0], hosts[1]
}

// dialled is how a test makes a connection: it returns both queue pairs.
type dialled func(t *testing.T, client, server *host) (a, b *verbs.QP)

// dials makes connections by Dial and Accept.
func dials(typ verbs.QPType, d cm.DialConfig) dialled {
	return func(t *testing.T, client, server *host) (a, b *verbs.QP) {
		l, addr := server.listen(cm.ListenConfig{Type: typ})
		got := server.serve(l, cm.AcceptConfig{})
		c, err := cm.Dial(client.context(), client.qp(typ), addr, d)
		must(t, err)
		s := <-got
		must(t, s.err) // the program sees no request that comes to nothing
		if x, y := c.Params().PathMTU, s.conn.Params().PathMTU; x != y || s.req.Params().PathMTU != y {
			t.Errorf("the connections say %v and %v, the request %v", x, y, s.req.Params().PathMTU)
		}
		return c.QP(), s.conn.QP()
	}
}

// identified makes them by the events of librdmacm, as unmodified programs do
// if bare: their queue pairs are theirs, and they say nothing of themselves.
func identified(bare bool) dialled {
	return func(t *testing.T, client, server *host) (a, b *verbs.QP) {
		sch, cch := server.channel(), client.channel()
		cid := client.resolved(cch, cm.TCP, server.listenID(sch, cm.TCP).LocalAddr())
		if !bare {
			a = client.createQP(cid)
			must(t, cid.Connect(nil))
			sid := server.want(sch, cm.EventConnectRequest).ID
			b = server.createQP(sid)
			must(t, sid.Accept(nil))
			client.want(cch, cm.EventEstablished)
			server.want(sch, cm.EventEstablished)
			return a, b
		}
		a, b = client.qp(verbs.RC), server.qp(verbs.RC)
		must(t, cid.SetOption(cm.WithoutECE()))
		must(t, cid.Connect(&cm.ConnParam{QPN: a.QPN(), RetryCount: 7, RNRRetryCount: 7}))
		served := make(chan error, 1)
		go func() { served <- server.acceptAsProgram(sch, b) }()
		client.want(cch, cm.EventConnectResponse)
		must(t, <-served)
		must(t, byAttributes(cid, a))
		must(t, cid.Establish())
		server.want(sch, cm.EventEstablished)
		return a, b
	}
}

// acceptAsProgram accepts the next request as librdmacm does.
func (h *host) acceptAsProgram(ch *cm.EventChannel, q *verbs.QP) error {
	e, err := ch.Get(h.context())
	if err != nil {
		return err
	}
	if err := byAttributes(e.ID, q); err != nil {
		return errors.Join(err, e.ID.Reject(nil))
	}
	return e.ID.Accept(&cm.ConnParam{QPN: q.QPN(), RNRRetryCount: 7})
}

// byAttributes connects a queue pair as librdmacm does.
func byAttributes(id *cm.ID, q *verbs.QP) error {
	for _, s := range []verbs.State{verbs.StateRTR, verbs.StateRTS} {
		a, mask, err := id.InitQPAttr(s)
		if err == nil {
			err = q.Modify(a, mask)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// The two sides of a connection agree on the path MTU of the smaller interface,
// whichever side has it, and however the connection is made.
func TestPathMTUIsAgreedOn(t *testing.T) {
	t.Parallel()
	ways := map[string]dialled{
		"RC":        dials(verbs.RC, cm.DialConfig{}),
		"UC":        dials(verbs.UC, cm.DialConfig{}),
		"no ECE":    dials(verbs.RC, cm.DialConfig{NoECE: true}),
		"other ECE": dials(verbs.RC, cm.DialConfig{ECE: cm.ECE{VendorID: 0x15b3, Options: 7}}),
		"own MTU":   dials(verbs.RC, cm.DialConfig{PathMTU: verbs.MTU512}),
		"ID":        identified(false),
		"program":   identified(true),
	}
	for _, mtus := range [][2]int{{9000, 1500}, {1500, 9000}, {65536, 2300}, {1500, 400}} {
		for name, way := range ways {
			t.Run(fmt.Sprint(name, " ", mtus), func(t *testing.T) {
				t.Parallel()
				client, server := unequal(t, mtus[0], mtus[1])
				want := min(client.dev.PathMTU(netip.Addr{}), server.dev.PathMTU(netip.Addr{}))
				if name == "own MTU" {
					if want < verbs.MTU512 { // it is not given up
						_, addr := server.listen(cm.ListenConfig{})
						_, err := cm.Dial(client.context(), client.qp(verbs.RC), addr, cm.DialConfig{PathMTU: verbs.MTU512})
						wantRejected(t, "an MTU of 512", err, cm.ReasonMTU)
						return
					}
					want = verbs.MTU512
				}
				a, b := way(t, client, server)
				if x, y := a.Query().PathMTU, b.Query().PathMTU; x != want || y != want {
					t.Fatalf("path MTUs %v and %v; want %v", x, y, want)
				}
				for from, to := range map[*host]*host{client: server, server: client} {
					q := map[*host]*verbs.QP{client: a, server: b}[from]
					text := string(from.mr.Bytes()[:1000])
					must(t, q.PostSend(verbs.SendWR{ID: 100, Opcode: verbs.OpSend, SGList: []verbs.SGE{from.mr.Slice(0, 1000)}, Signaled: true}))
					if to.message() != text {
						t.Error("the message differs")
					}
				}
			})
		}
	}
}

// A path MTU of the program that is too much for the server is rejected, with
// the reason and what would do. The server's program is not bothered with it.
func TestRejectMTU(t *testing.T) {
	t.Parallel()
	sw := fabric.NewSwitch(fabric.Config{LinkMTU: 1500})
	var hosts []*host
	for _, a := range []string{"192.0.2.1", "192.0.2.2"} {
		port, err := sw.Attach(netip.MustParseAddr(a))
		must(t, err)
		hosts = append(hosts, newHost(t, port))
	}
	client, server := hosts[0], hosts[1]
	l, addr := server.listen(cm.ListenConfig{})
	got := server.serve(l, cm.AcceptConfig{})
	_, err := cm.Dial(client.context(), client.qp(verbs.RC), addr, cm.DialConfig{PathMTU: verbs.MTU4096})
	r := wantRejected(t, "an MTU of 4096", err, cm.ReasonMTU)
	if len(r.Info) == 0 || r.Info[0] != byte(verbs.MTU1024) || !strings.Contains(err.Error(), "1024") {
		t.Errorf("it does not say what would do: %v, %v", err, r.Info)
	}
	a, err := cm.Dial(client.context(), client.qp(verbs.RC), addr, cm.DialConfig{})
	must(t, err)
	s := <-got
	must(t, s.err)
	if m := a.Params().PathMTU; m != verbs.MTU1024 {
		t.Errorf("path MTU %v", m)
	}
}

// A peer that is no listener of this software says of the path MTU what it
// likes. A dial asks once more, with less, and with nothing that is no path
// MTU; and what the program has chosen is not changed.
func TestPathMTUOfStrangers(t *testing.T) {
	t.Parallel()
	const vendor, native = cm.Vendor, 1
	for _, c := range []struct {
		name   string
		dial   cm.DialConfig
		info   []byte // of a REJ; nil: a REP
		ece    uint32 // options of the REP
		want   verbs.MTU
		asked  string // path MTUs of the REQs
		rejoin bool   // the second REQ is accepted
	}{
		{name: "says nothing", info: []byte{}, asked: "[5]"},
		{name: "code 0", info: []byte{0}, asked: "[5]"},
		{name: "code 6", info: []byte{6}, asked: "[5]"},
		{name: "code 255", info: []byte{255, 1}, asked: "[5]"},
		{name: "the same", info: []byte{5}, asked: "[5]"},
		{name: "less", info: []byte{2}, asked: "[5 2]"},
		{name: "more than was asked for", dial: cm.DialConfig{PathMTU: verbs.MTU512}, info: []byte{4}, asked: "[2]"},
		{name: "less than the program wants", dial: cm.DialConfig{PathMTU: verbs.MTU512}, info: []byte{1}, asked: "[2]"},
		{name: "accepts at last", info: []byte{3, 9}, asked: "[5 3]", rejoin: true, want: verbs.MTU1024},
		{name: "REP with less", ece: native | 2<<8, asked: "[5]", want: verbs.MTU512},
		{name: "REP with code 0", ece: native, asked: "[5]", want: verbs.MTU4096},
		{name: "REP with code 7", ece: native | 7<<8, asked: "[5]", want: verbs.MTU4096},
		{name: "REP with all bits", ece: 1<<32 - 1, asked: "[5]", want: verbs.MTU4096},
		{name: "REP with more", dial: cm.DialConfig{PathMTU: verbs.MTU512}, ece: native | 5<<8, asked: "[2]", want: verbs.MTU512},
		{name: "REP with less than the program wants", dial: cm.DialConfig{PathMTU: verbs.MTU1024}, ece: native | 1<<8, asked: "[3]", want: verbs.MTU1024},
		{name: "REP of another vendor", dial: cm.DialConfig{NoECE: true}, ece: native | 1<<8, asked: "[5]", want: verbs.MTU4096},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client, server := unequal(t, 9000, 9000)
				var asked []uint8
				answering(server, func(m *mad.REQ, local mad.CommID) []mad.Message {
					asked = append(asked, m.PathMTU)
					if c.info != nil && (!c.rejoin || len(asked) == 1) {
						return []mad.Message{&mad.REJ{TransactionID: m.TransactionID, RemoteID: m.LocalID, Reason: mad.ReasonInvalidMTU, ARI: c.info}}
					}
					return []mad.Message{&mad.REP{TransactionID: m.TransactionID, LocalID: local, RemoteID: m.LocalID, LocalQPN: 77, LocalGUID: 5,
						ResponderResources: 1, InitiatorDepth: 1, ECE: mad.ECE{VendorID: vendor, Options: c.ece}}}
				})
				conn, err := cm.Dial(client.context(), client.qp(verbs.RC), netip.AddrPortFrom(server.dev.Addr(), 7), c.dial)
				if got := fmt.Sprint(asked); got != c.asked {
					t.Errorf("the REQs ask for %v, want %v", got, c.asked)
				}
				if c.want == 0 {
					wantRejected(t, c.name, err, cm.ReasonMTU)
					return
				}
				must(t, err)
				if got := conn.Params().PathMTU; got != c.want {
					t.Errorf("the path MTU is %v, want %v", got, c.want)
				}
			})
		})
	}
}
