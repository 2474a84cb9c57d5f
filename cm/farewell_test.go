package cm_test

import (
	"testing"

	"github.com/gosoftroce/rocev2/cm"
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
