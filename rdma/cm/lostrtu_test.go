package cm_test

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport/fault"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestEndBeforeTheRTU loses the RTU of a client whose messages arrive. The
// server is done with it and disconnects: for the client that is the end of a
// connection, and no rejection.
func TestEndBeforeTheRTU(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, c *cm.Conn){
		"Disconnect": func(t *testing.T, c *cm.Conn) { must(t, c.Disconnect(t.Context())) },
		"Close":      func(t *testing.T, c *cm.Conn) { must(t, c.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sw := fabric.NewSwitch(fabric.Config{})
				server := hostOn(t, sw, "192.0.2.2")
				client := hostOn(t, sw, "192.0.2.1", fault.Rule{Action: fault.Drop, Direction: fault.Tx, Opcodes: []rocev2.Opcode{rocev2.UDSendOnly}, Nth: 2})
				l, addr := server.listen(cm.ListenConfig{})
				accepted := make(chan *cm.Conn, 1)
				go func() {
					r, err := l.Accept(server.context())
					must(t, err)
					c, err := r.Accept(server.context(), server.qp(verbs.RC), cm.AcceptConfig{})
					must(t, err)
					accepted <- c
				}()
				q := client.qp(verbs.RC)
				c, err := cm.Dial(client.context(), q, addr, cm.DialConfig{})
				must(t, err)
				client.send(q, "hello")
				if got := server.message(); got != "hello" {
					t.Errorf("the server has %q", got)
				}
				end(t, <-accepted)
				<-c.Done()
				wantErr(t, "the client's connection", c.Err(), cm.ErrDisconnected)
			})
		})
	}
}

// hostOn makes a host on a network, with faults in its packets.
func hostOn(t *testing.T, sw *fabric.Switch, addr string, faults ...fault.Rule) *host {
	t.Helper()
	port, err := sw.Attach(netip.MustParseAddr(addr))
	must(t, err)
	dev, err := verbs.OpenLink(fault.New(port, 1, faults...), verbs.Config{})
	must(t, err)
	t.Cleanup(func() { dev.Close() })
	h := &host{t: t, dev: dev, port: port}
	h.pd, err = dev.AllocPD()
	must(t, err)
	h.cq, err = dev.CreateCQ(1024)
	must(t, err)
	h.mr, err = h.pd.RegisterMemory(make([]byte, 1<<16), verbs.LocalWrite)
	must(t, err)
	return h
}
