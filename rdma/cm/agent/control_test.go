package agent

import (
	"testing"

	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// overControl makes a connection over control connection 7 between two agents,
// and returns what the passive side was told.
func overControl(t *testing.T, idle func(uint32)) (client, server *Agent, id ID, e Event) {
	t.Helper()
	client = newTestAgent(1, Config{})
	server = newTestAgent(2, Config{Idle: idle})
	if err := server.Listen(tcpService, 0); err != nil {
		t.Fatal(err)
	}
	id, err := client.Connect(1, &ConnectRequest{Path: Path{Local: clientAddr, Remote: serverAddr, Control: 7},
		REQ: mad.REQ{ServiceID: tcpService, PathMTU: 1, LocalQPN: 50, Primary: mad.Path{AckTimeout: 14}}})
	if err != nil {
		t.Fatal(err)
	}
	pass(t, client, server)
	e, _ = server.Event()
	if e.Kind != EventRequest || e.Path.Control != 7 {
		t.Fatalf("%+v", e)
	}
	if err := server.Accept(2, e.ID, &mad.REP{LocalQPN: 60}); err != nil {
		t.Fatal(err)
	}
	pass(t, server, client)
	if err := client.Ready(3, id, nil); err != nil {
		t.Fatal(err)
	}
	pass(t, client, server)
	if server.State(e.ID) != StateEstablished || client.State(id) != StateEstablished {
		t.Fatalf("%v, %v", server.State(e.ID), client.State(id))
	}
	return client, server, id, e
}

// pass brings one MAD from an agent to another, which goes over control
// connection 7.
func pass(t *testing.T, from, to *Agent) (b [mad.Len]byte) {
	t.Helper()
	path, ok := from.Send(b[:])
	if !ok || path.Control != 7 {
		t.Fatalf("%v, %+v", ok, path)
	}
	to.Receive(4, Path{Local: path.Remote, Remote: path.Local, Control: 7}, b[:])
	return b
}

// What comes in clear, or over another control connection, does not end a
// connection, with the right IDs neither; and the connection is the only one.
func TestControlKeepsOthersOut(t *testing.T) {
	t.Parallel()
	var told []uint32
	client, server, id, e := overControl(t, func(n uint32) { told = append(told, n) })
	local, remote := mad.CommID(id), mad.CommID(e.ID)
	for _, m := range []mad.Message{
		&mad.DREQ{LocalID: local, RemoteID: remote, RemoteQPN: 60},
		&mad.REJ{LocalID: local, RemoteID: remote, Message: mad.StageOther, Reason: mad.ReasonConsumer},
		&mad.REQ{LocalID: 99, LocalGUID: 1, LocalQPN: 50, ServiceID: tcpService, PathMTU: 1, PKey: 0xffff, Primary: mad.Path{LocalGID: clientAddr, RemoteGID: serverAddr, AckTimeout: 14}},
	} {
		for _, control := range []uint32{0, 8} {
			server.Receive(5, Path{Local: serverAddr, Remote: clientAddr, Control: control}, m.AppendTo(nil))
		}
	}
	if got := server.State(e.ID); got != StateEstablished {
		t.Errorf("the connection is in %v", got)
	}
	for ev, ok := server.Event(); ok; ev, ok = server.Event() {
		if ev.Kind == EventRequest { // the two REQs
			server.Release(5, ev.ID)
		} else if ev.Kind != EventEstablished {
			t.Errorf("%v", ev.Kind)
		}
	}
	var buf [mad.Len]byte
	for _, ok := server.Send(buf[:]); ok; _, ok = server.Send(buf[:]) {
	}
	second := mad.REQ{LocalID: 100, LocalGUID: 1, LocalQPN: 51, ServiceID: tcpService, PathMTU: 1, PKey: 0xffff, Primary: mad.Path{LocalGID: clientAddr, RemoteGID: serverAddr, AckTimeout: 14}}
	server.Receive(6, Path{Local: serverAddr, Remote: clientAddr, Control: 7}, second.AppendTo(nil))
	var rej mad.REJ
	if path, ok := server.Send(buf[:]); !ok || path.Control != 7 || rej.Parse(buf[:]) != nil || rej.Reason != mad.ReasonNoResources || rej.RemoteID != 100 {
		t.Errorf("a second request: %+v, %+v", path, rej)
	}
	told = nil
	server.Cut(Path{Local: serverAddr, Remote: clientAddr, Control: 7})
	if ev, ok := server.Event(); !ok || ev.Kind != EventUnreachable || ev.ID != e.ID || len(told) != 1 || told[0] != 7 || server.Busy(Path{Local: serverAddr, Remote: clientAddr, Control: 7}) {
		t.Errorf("%+v, %v", ev, told)
	}
	client.Release(7, id)
}

// A connection that is detached ends by nothing that comes, and without a word.
func TestDetach(t *testing.T) {
	t.Parallel()
	_, server, id, e := overControl(t, nil)
	if err := server.Detach(e.ID); err != nil {
		t.Fatal(err)
	}
	if err := server.Detach(e.ID + 1); err == nil {
		t.Error("an unknown ID is detached")
	}
	path := Path{Local: serverAddr, Remote: clientAddr, Control: 7}
	for _, m := range []mad.Message{
		&mad.DREQ{LocalID: mad.CommID(id), RemoteID: mad.CommID(e.ID), RemoteQPN: 60},
		&mad.REJ{LocalID: mad.CommID(id), RemoteID: mad.CommID(e.ID), Message: mad.StageOther, Reason: mad.ReasonConsumer},
	} {
		server.Receive(5, path, m.AppendTo(nil))
	}
	if got := server.State(e.ID); got != StateEstablished {
		t.Errorf("it is in %v", got)
	}
	server.Release(6, e.ID)
	var buf [mad.Len]byte
	if _, ok := server.Send(buf[:]); ok {
		t.Error("the peer is told of the end")
	}
	if st := server.Stats(); st.Connections != 0 || st.Timers != 0 {
		t.Errorf("%+v", st)
	}
}
