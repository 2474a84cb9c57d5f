package frames

import (
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Packets of all sizes keep their bytes, and what is given back is used again.
func TestStore(t *testing.T) {
	t.Parallel()
	var p Store
	var handles []uint32
	for round := range 3 {
		handles = handles[:0]
		for n := 16; n <= rocev2.MaxPacketLen; n += 13 {
			b := make([]byte, n-rocev2.ICRCLen)
			for i := range b {
				b[i] = byte(n + i)
			}
			handles = append(handles, p.put(b, n, uint8(n)))
		}
		for i, h := range handles {
			n := 16 + 13*i
			k := &p.all[h]
			if len(k.data) != n || k.trafficClass != uint8(n) || k.data[n-rocev2.ICRCLen-1] != byte(2*n-rocev2.ICRCLen-1) {
				t.Fatalf("round %d: packet %d is not what was put there", round, i)
			}
			p.Release(h)
		}
	}
	spare := 0
	for i := range p.spare {
		spare += len(p.spare[i])
	}
	if len(p.all) != len(handles) || len(p.free) != len(handles) || spare != len(handles) {
		t.Errorf("%d packets have left %d handles, %d of them free, and %d pieces of memory", len(handles), len(p.all), len(p.free), spare)
	}
}
