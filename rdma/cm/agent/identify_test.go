package agent

import (
	"bytes"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// The question, and the answers of an agent that has an identity and of one
// that has none, which is what any other gives.
func TestIdentify(t *testing.T) {
	t.Parallel()
	us := mad.ECE{VendorID: 0x123456, Options: 7}
	path := Path{Local: kernelServer, Remote: kernelClient}
	for what, c := range map[string]struct {
		identity, want mad.ECE
		listens        bool
		change         func(*mad.SIDRREQ)
	}{
		"identity":            {identity: us, want: us},
		"somebody listens":    {identity: us, want: us, listens: true},
		"no identity":         {},
		"another's":           {identity: mad.ECE{VendorID: 0x123457, Options: 7}},
		"a ping":              {identity: us, change: func(m *mad.SIDRREQ) { clear(m.Private[mad.IPHeaderLen:]) }},
		"for another service": {identity: us, change: func(m *mad.SIDRREQ) { m.ServiceID++ }},
	} {
		client := newTestAgent(1, Config{Identity: us})
		server := newTestAgent(2, Config{Identity: c.identity})
		if c.listens {
			if err := server.Listen(noService, 0); err != nil {
				t.Fatal(err)
			}
		}
		id, err := client.Resolve(1, IdentityRequest(Path{Local: kernelClient, Remote: kernelServer}, us))
		if err != nil {
			t.Fatal(err)
		}
		var buf [mad.Len]byte
		client.Send(buf[:])
		var q mad.SIDRREQ
		if err := q.Parse(buf[:]); err != nil {
			t.Fatal(err)
		}
		var ip mad.IPHeader
		data, err := ip.Parse(q.Private)
		if err != nil || ip.Source != kernelClient || ip.Destination != kernelServer || q.PKey != 0xffff || q.ServiceID != mad.PortSpaceUDP.Service(0) ||
			!bytes.HasPrefix(data, []byte{0x12, 0x34, 0x56, 0}) {
			t.Fatalf("%+v, %+v, %x: %v", q, ip, data, err)
		}
		if c.change != nil {
			c.change(&q)
		}
		server.Receive(2, path, q.AppendTo(nil))
		if _, ok := server.Event(); ok {
			t.Errorf("%s: the program sees it", what)
		}
		if _, ok := server.Send(buf[:]); !ok {
			t.Fatalf("%s: no answer", what)
		}
		client.Receive(3, Path{Local: kernelClient, Remote: kernelServer}, buf[:])
		e, ok := client.Event()
		if !ok || e.ID != id || e.Kind != EventSIDRReply || e.SIDRReply.Status != mad.SIDRUnsupported || e.SIDRReply.ECE != c.want || e.SIDRReply.QPN != 0 {
			t.Errorf("%s: %+v, %+v", what, e, e.SIDRReply)
		}
		if server.Stats().Connections != 0 {
			t.Errorf("%s: a question is kept", what)
		}
	}
}
