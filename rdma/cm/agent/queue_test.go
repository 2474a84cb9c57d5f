package agent

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// A queue that is never empty keeps no more memory than what is in it needs.
func TestQueueThatIsNeverEmpty(t *testing.T) {
	t.Parallel()
	var q queue[int]
	const depth = 100
	for i := range 1_000_000 {
		q.push(i)
		if i < depth {
			continue
		}
		if v, ok := q.pop(); !ok || v != i-depth {
			t.Fatalf("%d, %v; want %d", v, ok, i-depth)
		}
	}
	if n := cap(q.items); n > 8*depth {
		t.Errorf("room for %d entries, of which %d are there", n, depth)
	}
}

// A peer that sends what it has sent before, again and again and faster than
// the answers go, gets some of the answers and no more memory: in each state in
// which a message is answered once more.
func TestRepeatsAreBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		reach func(x *repeater) []byte // returns what is repeated
	}{
		{"REQ, in hand", func(x *repeater) []byte { x.connect(); return x.toServer(mad.AttrREQ) }},
		{"REQ, accepted", func(x *repeater) []byte {
			x.connect()
			b := x.toServer(mad.AttrREQ)
			x.must(x.server.Accept(x.now, x.sid(), &mad.REP{LocalQPN: 7}))
			return b
		}},
		{"REP, established", func(x *repeater) []byte { return x.establish() }},
		{"DREQ, timewait", func(x *repeater) []byte {
			x.establish()
			x.must(x.client.Disconnect(x.now, x.cid, nil))
			b := x.toServer(mad.AttrDREQ)
			x.must(x.server.Confirm(x.now, x.sid(), nil))
			return b
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			x := &repeater{t: t, now: 1e9, server: newTestAgent(1, Config{}), client: newTestAgent(2, Config{})}
			x.must(x.server.Listen(tcpService, 0))
			b := c.reach(x)
			a, path := x.server, Path{Local: serverAddr, Remote: clientAddr}
			if c.name == "REP, established" {
				a, path = x.client, Path{Local: clientAddr, Remote: serverAddr}
			}
			answered := a.Stats().Sent
			for range 50_000 {
				a.Receive(x.now, path, b)
			}
			if n := a.queueLen(); n > 2000 || n == 0 {
				t.Errorf("%d messages wait", n)
			}
			for _, ok := a.Send(make([]byte, mad.Len)); ok; _, ok = a.Send(make([]byte, mad.Len)) {
			}
			a.Receive(x.now, path, b)
			if _, ok := a.Send(make([]byte, mad.Len)); !ok || a.Stats().Sent == answered {
				t.Error("afterwards it is not answered any more")
			}
		})
	}
}

func (a *Agent) queueLen() int { return a.out.queue.len() }

// repeater has two agents that talk to each other.
type repeater struct {
	t              *testing.T
	now            clock.Time
	server, client *Agent
	cid            ID
}

func (x *repeater) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *repeater) connect() {
	var err error
	x.cid, err = x.client.Connect(x.now, &ConnectRequest{Path: Path{Local: clientAddr, Remote: serverAddr},
		REQ: mad.REQ{ServiceID: tcpService, LocalQPN: 9, PathMTU: 3, Primary: mad.Path{AckTimeout: 14}}})
	x.must(err)
}

// establish makes a connection, and returns its REP.
func (x *repeater) establish() []byte {
	x.connect()
	x.toServer(mad.AttrREQ)
	x.must(x.server.Accept(x.now, x.sid(), &mad.REP{LocalQPN: 7}))
	b := x.carry(x.server, x.client, serverAddr, clientAddr)
	x.must(x.client.Ready(x.now, x.cid, nil))
	x.toServer(mad.AttrRTU)
	return b
}

// sid returns the ID of the only connection that the server has.
func (x *repeater) sid() ID {
	for id := range x.server.table.conns {
		return ID(id)
	}
	x.t.Fatal("the server has no connection")
	return 0
}

// toServer carries the next message of the client, and returns it.
func (x *repeater) toServer(attr mad.Attribute) []byte {
	b := x.carry(x.client, x.server, clientAddr, serverAddr)
	var h mad.Header
	if x.must(h.Parse(b)); h.Attribute != attr {
		x.t.Fatalf("attribute %v; want %v", h.Attribute, attr)
	}
	return b
}

func (x *repeater) carry(from, to *Agent, local, remote netip.Addr) []byte {
	b := make([]byte, mad.Len)
	if _, ok := from.Send(b); !ok {
		x.t.Fatal("nothing is sent")
	}
	to.Receive(x.now, Path{Local: remote, Remote: local}, b)
	return b
}
