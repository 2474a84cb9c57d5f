package agent

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/internal/captures"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Between two Linux hosts: the client and the server of the captures.
var (
	kernelClient = netip.MustParseAddr("198.18.0.4")
	kernelServer = netip.MustParseAddr("198.18.0.2")
)

// kernelMADs returns the MADs of a capture in order.
func kernelMADs(t *testing.T, name string) []mad.Message {
	t.Helper()
	frames, _ := captures.File(t, "testdata/golden/"+name+".pcap")
	var all []mad.Message
	for _, f := range frames {
		var p rocev2.Packet
		if err := p.Parse(f[14+20+8 : 14+int(binary.BigEndian.Uint16(f[16:]))]); err != nil {
			t.Fatal(err)
		}
		if p.BTH.DestQPN != rocev2.GSIQPN {
			continue
		}
		_, m, err := mad.Parse(p.Payload)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// kernel stands for one of the hosts of a capture, towards an agent that has
// the place of the other.
type kernel struct {
	t     *testing.T
	agent *Agent
	path  Path // of what the kernel sends, as the agent sees it
}

func (k *kernel) sends(m mad.Message) Event {
	k.t.Helper()
	k.agent.Receive(1, k.path, m.AppendTo(nil))
	e, ok := k.agent.Event()
	if !ok {
		k.t.Fatalf("no event from %+v: %+v", m, k.agent.Stats())
	}
	return e
}

// gets compares what the agent sends with what the other kernel has sent.
func (k *kernel) gets(want mad.Message) {
	k.t.Helper()
	var b [mad.Len]byte
	path, ok := k.agent.Send(b[:])
	if !ok || path.Remote != k.path.Remote || path.Local != k.path.Local {
		k.t.Fatalf("sends %v to %+v", ok, path)
	}
	if !bytes.Equal(b[:], want.AppendTo(nil)) {
		_, m, err := mad.Parse(b[:])
		k.t.Fatalf("sends %+v, %v\nwant %+v", m, err, want)
	}
}

// The server of rping, rdma_client and cmtime: what the agent answers to the
// client's kernel is, byte for byte, what the server's kernel answered, but for
// the IDs that each chooses.
func TestKernelClient(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"rping", "rdma_client", "cmtime"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := kernelMADs(t, name)
			req := first[*mad.REQ](all)
			rep, rtu, dreq, drep := first[*mad.REP](all), first[*mad.RTU](all), first[*mad.DREQ](all), first[*mad.DREP](all)
			rng := uint32(0)
			k := &kernel{t: t, path: Path{Local: kernelServer, Remote: kernelClient, HopLimit: 64}, agent: New(Config{
				GUID: rep.LocalGUID, Random: func() uint32 { rng++; return rng },
			})}
			if err := k.agent.Listen(req.ServiceID, 0); err != nil {
				t.Fatal(err)
			}
			e := k.sends(req)
			answer := *rep
			if err := k.agent.Accept(1, e.ID, &answer); err != nil {
				t.Fatal(err)
			}
			rep.LocalID = mad.CommID(e.ID)
			rtu.RemoteID = rep.LocalID
			k.gets(rep)
			if e := k.sends(rtu); e.Kind != EventEstablished {
				t.Fatalf("%v", e.Kind)
			}
			dreq.LocalID, dreq.RemoteID, dreq.RemoteQPN = req.LocalID, rep.LocalID, rep.LocalQPN
			if e := k.sends(dreq); e.Kind != EventDisconnectRequested {
				t.Fatalf("%v", e.Kind)
			}
			if err := k.agent.Confirm(1, e.ID, nil); err != nil {
				t.Fatal(err)
			}
			drep.LocalID, drep.RemoteID, drep.TransactionID = rep.LocalID, req.LocalID, dreq.TransactionID
			k.gets(drep)
		})
	}
}

// The client: the REQ is the kernel's, byte for byte, with the same queue pair
// and private data.
func TestKernelServer(t *testing.T) {
	t.Parallel()
	all := kernelMADs(t, "rping")
	req, rep, rtu, dreq, drep := first[*mad.REQ](all), first[*mad.REP](all), first[*mad.RTU](all), first[*mad.DREQ](all), first[*mad.DREP](all)
	rng := uint32(0)
	k := &kernel{t: t, path: Path{Local: kernelClient, Remote: kernelServer, HopLimit: 64}, agent: New(Config{
		GUID: req.LocalGUID, Random: func() uint32 { rng++; return rng },
	})}
	id, err := k.agent.Connect(1, &ConnectRequest{Path: Path{Local: kernelClient, Remote: kernelServer}, REQ: mad.REQ{
		ServiceID: req.ServiceID, LocalQPN: req.LocalQPN, StartingPSN: req.StartingPSN, ResponderResources: req.ResponderResources,
		InitiatorDepth: req.InitiatorDepth, RetryCount: req.RetryCount, RNRRetryCount: req.RNRRetryCount, PathMTU: req.PathMTU,
		FlowControl: req.FlowControl, SRQ: req.SRQ, Private: req.Private,
		Primary: mad.Path{FlowLabel: req.Primary.FlowLabel, AckTimeout: req.Primary.AckTimeout},
	}})
	if err != nil {
		t.Fatal(err)
	}
	req.LocalID = mad.CommID(id)
	req.TransactionID = req.TransactionID&^0xffffffff | uint64(id)
	// The upper half of transaction IDs is each agent's own.
	req.TransactionID = req.TransactionID&0xffffffff | k.agent.life.transaction
	k.gets(req)
	rep.RemoteID, rep.TransactionID = req.LocalID, req.TransactionID
	if e := k.sends(rep); e.Kind != EventReply || e.Reply.LocalQPN != rep.LocalQPN {
		t.Fatalf("%+v", e)
	}
	if err := k.agent.Ready(1, id, nil); err != nil {
		t.Fatal(err)
	}
	rtu.LocalID, rtu.TransactionID = req.LocalID, req.TransactionID
	k.gets(rtu)
	if err := k.agent.Disconnect(1, id, nil); err != nil {
		t.Fatal(err)
	}
	dreq.LocalID, dreq.TransactionID = req.LocalID, req.TransactionID
	k.gets(dreq)
	drep.RemoteID = req.LocalID
	if e := k.sends(drep); e.Kind != EventDisconnected {
		t.Fatalf("%+v", e)
	}
}

// Both sides of udaddy.
func TestKernelSIDR(t *testing.T) {
	t.Parallel()
	all := kernelMADs(t, "udaddy")
	req, rep := first[*mad.SIDRREQ](all), first[*mad.SIDRREP](all)
	server := newTestAgent(1, Config{})
	if err := server.Listen(req.ServiceID, 0); err != nil {
		t.Fatal(err)
	}
	k := &kernel{t: t, path: Path{Local: kernelServer, Remote: kernelClient}, agent: server}
	e := k.sends(req)
	answer := *rep
	if err := server.Answer(1, e.ID, &answer); err != nil {
		t.Fatal(err)
	}
	k.gets(rep)

	client := newTestAgent(2, Config{})
	id, err := client.Resolve(1, &SIDRRequest{Path: Path{Local: kernelClient, Remote: kernelServer}, ServiceID: req.ServiceID, Private: req.Private})
	if err != nil {
		t.Fatal(err)
	}
	k = &kernel{t: t, path: Path{Local: kernelClient, Remote: kernelServer}, agent: client}
	req.RequestID, req.TransactionID = mad.CommID(id), client.life.transaction|uint64(id)
	k.gets(req)
	rep.RequestID = req.RequestID
	if e := k.sends(rep); e.Kind != EventSIDRReply || e.SIDRReply.QKey != 0x01234567 || e.SIDRReply.QPN != rep.QPN {
		t.Fatalf("%+v", e)
	}
}

func first[M mad.Message](all []mad.Message) M {
	for _, m := range all {
		if m, ok := m.(M); ok {
			return m
		}
	}
	panic("the capture has no such message")
}

// An answer has the traffic class of what it answers, but not the mark that the
// network has put on that (RFC 3168).
func TestTrafficClassOfAnswers(t *testing.T) {
	t.Parallel()
	a := newTestAgent(1, Config{})
	dreq := mad.DREQ{LocalID: 1, RemoteID: 2}
	a.Receive(1, Path{Local: serverAddr, Remote: clientAddr, TrafficClass: 0x6b, HopLimit: 3, FlowLabel: 7}, dreq.AppendTo(nil))
	var b [mad.Len]byte
	path, ok := a.Send(b[:])
	if want := (Path{Local: serverAddr, Remote: clientAddr, TrafficClass: 0x68, HopLimit: 64, FlowLabel: 7}); !ok || path != want {
		t.Errorf("the answer goes by %+v, want %+v", path, want)
	}
}
