package psp_test

import (
	"errors"
	"testing"

	wire "github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/psp"
)

// loop is a link whose packets come back, with no memory but its own.
type loop struct {
	*cable
	kept [4][]byte
	n    int
}

func (l *loop) Send(b *transport.TxBatch) error {
	l.n = b.Len()
	for i := range l.n {
		data, _ := b.Sealed(i)
		l.kept[i] = append(l.kept[i][:0], data...)
	}
	return nil
}

func (l *loop) Recv(b *transport.RxBatch) (int, error) {
	b.Reset()
	for _, data := range l.kept[:l.n] {
		b.AppendCopy(transport.RxPacket{Data: data, Src: addrB, Dst: addrA, SrcPort: 4791, ICRC: transport.ICRCSealed})
	}
	return l.n, nil
}

// Packets are sealed and opened without an allocation, whatever algorithm, with
// the keys of a chain.
func TestNothingAllocates(t *testing.T) { // not parallel: allocations of others would count
	for _, v := range []wire.Version{wire.GCM128, wire.GCM256, wire.GMAC128, wire.GMAC256} {
		l := psp.New(&loop{cable: newCable(addrA)}) // what is sealed comes back
		accepts, err := wire.NewChain(v, secret[:v.KeyLen()])
		check(t, err)
		seals, err := wire.NewChain(v, secret[:v.KeyLen()])
		check(t, err)
		check(t, errors.Join(l.AcceptChain(addrB, spiAB, accepts), l.SealChain(addrB, spiAB, seals, spiAB)))
		tx, rx := batch(sealedPath(spiAB), 8, 1024, 4096, 8), transport.NewRxBatch(4)
		if n := testing.AllocsPerRun(100, func() {
			check(t, l.Send(tx))
			if n, err := l.Recv(rx); n != tx.Len() || err != nil {
				t.Fatal(n, err)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations for %d packets", v, n, tx.Len())
		}
	}
}
