package cm_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// hostile has a peer that is authenticated send what an input says over its
// control connection: messages as they are, or with the IDs and addresses that
// the listener looks for.
func hostile(n *securedNet, p *cm.Peer, port uint16, in []byte) {
	next := func() (b byte) {
		if len(in) > 0 {
			b, in = in[0], in[1:]
		}
		return b
	}
	for len(in) > 0 {
		var b []byte
		switch kind := next(); kind & 3 {
		case 0: // any bytes
			size := min(int(next())*4, len(in))
			b, in = in[:size], in[size:]
		case 1:
			b = n.request(mad.CommID(next()), port+uint16(kind>>7))
		default:
			b = mad.New(mad.AttrREQ + mad.Attribute(next()%11)).AppendTo(nil)
		}
		for range next() & 7 {
			if i := int(next()); i < len(b) {
				b[i] = next()
			}
		}
		if !p.Send(b) {
			return
		}
		if next()&1 == 0 {
			time.Sleep(time.Duration(next()) * 10 * time.Millisecond)
		}
	}
}

// FuzzControl has an authenticated peer send anything over a control
// connection. Nothing panics, the listener serves others, and nothing is left.
func FuzzControl(f *testing.F) {
	f.Add([]byte{1, 5, 0, 1, 2, 4, 0, 0, 9})
	f.Add([]byte{1, 5, 0, 1, 1, 6, 0, 1, 0, 1, 0})
	f.Add([]byte{0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 1024 {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			n := newSecuredNet(t, fabric.Config{})
			l, addr := n.server.listen(cm.ListenConfig{TLS: n.listen})
			go func() {
				for turn := 0; ; turn++ {
					r, err := l.Accept(t.Context())
					if err != nil {
						return
					}
					if string(r.PrivateData()[:6]) != "honest" && turn%2 == 0 {
						r.Reject(nil) // it may be over
						continue
					}
					q := n.server.qp(verbs.RC)
					if c, err := r.Accept(t.Context(), q, cm.AcceptConfig{}); err == nil {
						c.AfterEnd(func() { q.Close() })
					} else {
						q.Close()
					}
				}
			}()
			p, err := cm.CallControl(n.client.context(), n.client.dev, addr, n.dial)
			must(t, err)
			hostile(n, p, addr.Port(), in)
			c, err := cm.Dial(n.client.context(), n.client.qp(verbs.RC), addr, cm.DialConfig{TLS: n.dial, PrivateData: []byte("honest")})
			must(t, err)
			must(t, c.Disconnect(n.client.context()))
			p.Close()
			must(t, l.Close())
			time.Sleep(10 * time.Minute)
			n.wantNothingLeft()
		})
	})
}
