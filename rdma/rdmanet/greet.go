package rdmanet

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rdma/rdmanet/rsocket"
	"github.com/gosoftroce/rocev2/verbs"
)

// A listener answers requests before anything is made for the peer. The answer
// has the key and the address of a ring which is not there yet. So both follow
// from the request and a secret: the ring that is made when the peer has shown
// that it exists gets the same. No other peer can guess them.

// promise is what a peer was told of a ring.
type promise struct {
	key  verbs.Key
	addr uint64
}

// secret is what promises are made with.
var secret = sync.OnceValue(func() (b [sha256.Size]byte) {
	_, _ = rand.Read(b[:]) // it never fails
	return b
})

// promised returns what a peer that asks with these terms is told.
func promised(remote cm.Addr, p *cm.Params) promise {
	key := secret()
	m := hmac.New(sha256.New, key[:])
	ip := remote.Addr().As16()
	b := append(ip[:], remote.Addr().Zone()...)
	b = binary.BigEndian.AppendUint16(b, remote.Port())
	b = binary.BigEndian.AppendUint32(b, uint32(p.QPN))
	b = binary.BigEndian.AppendUint32(b, uint32(p.PSN))
	m.Write(b)
	sum := m.Sum(nil)
	// An address of 52 bits, at a page.
	return promise{verbs.Key(max(binary.BigEndian.Uint32(sum), 1)), binary.BigEndian.Uint64(sum[8:])>>16<<4&^0xfff | 1<<51}
}

// Greet is a cm.Greeter for requests of streams, of a program that has several
// services on one port: see [ListenConfig.Accept], which has the same Options.
func (lc *ListenConfig) Greet(g *cm.Greeting) (cm.AcceptConfig, error) {
	o, err := lc.Options.withDefaults()
	if err == nil {
		_, err = rsocket.ParseBlock(g.PrivateData)
	}
	if err != nil {
		return cm.AcceptConfig{}, err
	}
	b := block(&o, promised(cm.Addr{AddrPort: g.Remote, Space: cm.TCP}, &g.Params))
	return accepting(&b), nil
}

// accepting says how requests are accepted.
func accepting(b *rsocket.Block) cm.AcceptConfig {
	return cm.AcceptConfig{
		PrivateData: b.AppendTo(nil), Access: verbs.RemoteWrite, FlowControl: true,
		ResponderResources: verbs.Set(0), InitiatorDepth: verbs.Set(0),
	}
}

// greet implements cm.Greeter.
func (l *Listener) greet(g *cm.Greeting) (cm.AcceptConfig, error) {
	if l.conns.Load() >= int64(l.cfg.MaxConns) {
		return cm.AcceptConfig{}, &cm.RejectedError{Reason: cm.ReasonNoResources}
	}
	return l.cfg.Greet(g)
}
