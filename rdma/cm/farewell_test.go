package cm_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/transport/fault"
	"github.com/gosoftroce/rocev2/verbs"
)

// A device that is closed says so to the peers of all its connections, and not
// only to as many as the management queue pair sends to at once.
func TestDeviceTellsAllPeers(t *testing.T) {
	t.Parallel()
	const n = 100
	client, server := pair(t)
	l, addr := server.listen(cm.ListenConfig{})
	var conns []*cm.Conn
	for range n {
		got := server.serve(l, cm.AcceptConfig{})
		c, err := cm.Dial(client.context(), client.qp(verbs.RC), addr, cm.DialConfig{})
		must(t, err)
		must(t, (<-got).err)
		client.send(c.QP(), "ping")
		server.message() // now the server knows that the client is ready
		conns = append(conns, c)
	}
	server.dev.Close()
	for _, c := range conns {
		select {
		case <-c.Done():
			wantErr(t, "the peer's device is closed", c.Err(), cm.ErrDisconnected)
		case <-client.context().Done():
			t.Fatal("a connection does not learn that the peer's device is closed")
		}
	}
}

// A client cannot have this side wait for hours for an acknowledgement: then
// nothing would show that it is gone.
func TestLongestAckTimeout(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	_, b := connect(client, server, cm.DialConfig{AckTimeout: 31})
	if got := b.QP().Query().Timeout; got < 14 || got > 21 {
		t.Errorf("the server's ACK timeout has code %d, of a client that asks for 31; want at most 21, 8.6 s", got)
	}
}

// The DREP of a program that ends at once may be lost, and it is not there to
// repeat it when the DREQ comes again.
func TestLastAnswerGoesTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sw := fabric.NewSwitch(fabric.Config{})
		answer := func(p *rocev2.Packet) bool {
			h, _, err := mad.Parse(p.Payload)
			return err == nil && h.Attribute == mad.AttrDREP
		}
		server := hostOn(t, sw, "192.0.2.2")
		client := hostOn(t, sw, "192.0.2.1", fault.Rule{Action: fault.Drop, Direction: fault.Tx, Match: answer, Nth: 1})
		c, s := connect(client, server, cm.DialConfig{})
		client.send(c.QP(), "ping")
		server.message() // now the server knows that the client is ready
		go func() {
			<-c.Done()
			client.dev.Close()
		}()
		start := time.Now()
		must(t, s.Disconnect(t.Context()))
		if took := time.Since(start); took > 200*time.Millisecond { // until the DREQ would go again
			t.Errorf("it took %v", took)
		}
	})
}
