package rdmanet

import (
	"io"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// A program that has the port itself makes a stream of a request that is one,
// and refuses others.
func TestAcceptOfARequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		ln, err := cm.Listen(b, netip.AddrPortFrom(b.Addr(), 0), cm.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		accepted := make(chan error, 2)
		go func() {
			for range 2 {
				r, err := ln.Accept(t.Context())
				if err != nil {
					accepted <- err
					return
				}
				c, err := new(ListenConfig).Accept(t.Context(), r)
				if err == nil {
					_, err = io.Copy(c, c)
					c.Close()
				}
				accepted <- err
			}
		}()
		d := Dialer{Device: a}
		c, err := d.DialContext(t.Context(), Network, ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("there and back")); err != nil {
			t.Fatal(err)
		}
		if err := c.(*Conn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); string(got) != "there and back" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		c.Close()
		if err := <-accepted; err != nil {
			t.Error(err)
		}
		pd, err := a.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		cq, err := a.CreateCQ(4)
		if err != nil {
			t.Fatal(err)
		}
		q, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cm.Dial(t.Context(), q, ln.Addr().(*cm.Addr).AddrPort, cm.DialConfig{PrivateData: []byte("no stream")}); err == nil {
			t.Error("a request that is not of a stream is accepted")
		}
		if err := <-accepted; err == nil {
			t.Error("no error for a request that is not of a stream")
		}
	})
}
