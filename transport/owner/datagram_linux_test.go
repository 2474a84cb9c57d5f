//go:build !portable

package owner_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/verbs"
)

const (
	datagramLen = 1500
	datagramKey = 0x1badcafe
)

// newDatagramEnd makes a UD queue pair.
func newDatagramEnd(dev *verbs.Device) (e *end, err error) {
	if e, err = newEnd(dev); err != nil {
		return nil, err
	}
	if err = e.qp.Close(); err != nil {
		return nil, err
	}
	if e.qp, err = e.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: e.cq, RecvCQ: e.cq}); err != nil {
		return nil, err
	}
	return e, e.qp.Activate(datagramKey)
}

func (e *end) next() (wc verbs.WC, err error) {
	var list [1]verbs.WC
	_, err = e.cq.Wait(context.Background(), list[:])
	return list[0], err
}

// tell sends a datagram to another end, which answers the sender that the
// completion and the header name. Each byte of both is checked.
func (e *end) tell(ah *verbs.AddressHandle, to *end, from netip.Addr, i int) error {
	for _, x := range []*end{e, to} {
		if err := x.qp.PostRecv(verbs.RecvWR{ID: 1, SGList: []verbs.SGE{x.in.Slice(0, verbs.GRHLen+datagramLen)}}); err != nil {
			return err
		}
	}
	fill(e.out.Bytes(), 1, i)
	if err := e.say(ah, to.qp.QPN()); err != nil {
		return err
	}
	wc, err := to.hear(1, i)
	if err != nil {
		return err
	}
	h, err := verbs.ParseGRH(to.in.Bytes())
	if err != nil || h.Src != from || wc.SrcQPN != e.qp.QPN() {
		return fmt.Errorf("a datagram of %v from queue pair %v: %v, %v", h, wc.SrcQPN, err, e.qp.QPN())
	}
	back, err := to.pd.AHFromWC(wc, to.in.Bytes())
	if err != nil {
		return err
	}
	defer back.Close()
	fill(to.out.Bytes(), 2, i)
	if err := to.say(back, wc.SrcQPN); err != nil {
		return err
	}
	_, err = e.hear(2, i)
	return err
}

func (e *end) say(ah *verbs.AddressHandle, to verbs.QPN) error {
	err := e.qp.PostSend(verbs.SendWR{ID: 2, Opcode: verbs.OpSend, Signaled: true, SGList: []verbs.SGE{e.out.Slice(0, datagramLen)},
		AH: ah, RemoteQPN: to, RemoteQKey: datagramKey})
	if err != nil {
		return err
	}
	wc, err := e.next()
	if err == nil && wc.ID != 2 {
		err = fmt.Errorf("completion %+v", wc)
	}
	return err
}

func (e *end) hear(sender, i int) (verbs.WC, error) {
	wc, err := e.next()
	want := make([]byte, datagramLen)
	fill(want, sender, i)
	if err == nil && (wc.Status != verbs.StatusSuccess || wc.ByteLen != verbs.GRHLen+datagramLen || !bytes.Equal(e.in.Bytes()[verbs.GRHLen:wc.ByteLen], want)) {
		err = fmt.Errorf("other bytes than were sent, or %+v", wc)
	}
	return wc, err
}

// Datagrams pass among leases of two owners, and of one, over IPv4 and IPv6.
func TestDatagramsOfTwoOwners(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	testnet.IP(t, "addr add fd00::2/128 dev lo nodad")
	for _, addrs := range [][2]string{{"127.0.0.1", "127.0.0.2"}, {"::1", "fd00::2"}} {
		var ends []*end
		var from []netip.Addr
		for _, a := range addrs {
			addr := netip.MustParseAddr(a)
			o, err := owner.Listen(owner.Config{Addr: addr})
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			for range 2 {
				e, err := newDatagramEnd(openOn(t, a, verbs.Config{}))
				if err != nil {
					t.Fatal(err)
				}
				defer e.close()
				ends, from = append(ends, e), append(from, addr)
			}
		}
		for i, e := range ends {
			for k, to := range ends {
				if i == k {
					continue
				}
				ah, err := e.pd.CreateAH(verbs.AddressVector{DGID: from[k]})
				if err != nil {
					t.Fatal(err)
				}
				for n := range 20 {
					if err := e.tell(ah, to, from[i], n); err != nil {
						t.Fatalf("from %d to %d of %v, datagram %d: %v", i, k, addrs, n, err)
					}
				}
				ah.Close()
			}
		}
	}
}
