package ours

import (
	"encoding/json"
	"net/netip"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/verbs"
)

// loopback is a stream between two queue pairs of one device in one process,
// one program serving both. Packets pass inside the device: no socket, no ICRC.
type loopback struct {
	cfg  Config
	dev  *verbs.Device
	from *stream
}

// Hello makes both sides and connects them. The other worker is not needed.
func (l *loopback) Hello() (any, error) {
	if !l.cfg.Active {
		return nil, nil
	}
	addr, err := netip.ParseAddr(l.cfg.Addr)
	if err != nil {
		return nil, err
	}
	if l.dev, err = verbs.OpenAddr(addr, verbs.Config{Loopback: true}); err != nil {
		return nil, err
	}
	var sides [2]*stream
	var hellos [2][]byte
	for i := range sides {
		sides[i] = &stream{side: &side{cfg: l.cfg, dev: l.dev}}
		h, err := sides[i].Hello()
		if err != nil {
			return nil, err
		}
		if hellos[i], err = json.Marshal(h); err != nil {
			return nil, err
		}
	}
	for i, s := range sides {
		if err := s.Connect(hellos[1-i]); err != nil {
			return nil, err
		}
	}
	l.from = sides[0]
	l.from.partner = sides[1]
	return nil, nil
}

// Connect has nothing to connect.
func (l *loopback) Connect(json.RawMessage) error { return nil }

// Run measures on the active side.
func (l *loopback) Run(stop <-chan struct{}) (pair.Result, error) {
	if !l.cfg.Active {
		<-stop
		return pair.Result{}, nil
	}
	l.from.partner.prepareRecv()
	r, err := l.from.Run(stop)
	if st := l.dev.Stats(); st.Link.TxPackets > 0 {
		r.Errors["packets through the socket"] = st.Link.TxPackets
	}
	return r, err
}

// Close closes the device.
func (l *loopback) Close() error {
	if l.dev == nil {
		return nil
	}
	return l.dev.Close()
}
