package cm_test

import (
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// A program that closes a connection, or its device, right after it has
// accepted it: the client was connected, and learns that the connection has
// ended. It is not rejected.
func TestCloseRightAfterAccept(t *testing.T) {
	t.Parallel()
	for _, device := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			hosts := network(t, fabric.Config{}, "192.0.2.1", "192.0.2.2")
			client, server := hosts[0], hosts[1]
			l, addr := server.listen(cm.ListenConfig{})
			go func() {
				r, err := l.Accept(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				c, err := r.Accept(t.Context(), server.qp(verbs.RC), cm.AcceptConfig{})
				if err != nil {
					t.Error(err)
					return
				}
				if device {
					server.dev.Close()
				} else {
					c.Close()
				}
			}()
			c, err := cm.Dial(client.context(), client.qp(verbs.RC), addr, cm.DialConfig{})
			if err != nil {
				t.Fatalf("the device is closed, too: %v: %v", device, err)
			}
			<-c.Done()
			wantErr(t, "the connection", c.Err(), cm.ErrDisconnected)
			client.dev.Close()
			server.dev.Close()
		})
	}
}
