//go:build !portable

package lease

import (
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Only what passes between queue pairs 1 goes to the owner.
func TestManagement(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		p    rocev2.Packet
		want bool
	}{
		"MAD":               {rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.UDSendOnly, DestQPN: 1}, DETH: rocev2.DETH{SrcQPN: 1}}, true},
		"to another":        {rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.UDSendOnly, DestQPN: 257}, DETH: rocev2.DETH{SrcQPN: 1}}, false},
		"from another":      {rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.UDSendOnly, DestQPN: 1}, DETH: rocev2.DETH{SrcQPN: 2}}, false},
		"of a connection":   {rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, DestQPN: 1}, Payload: []byte{0, 0, 0, 0, 0, 0, 0, 1}}, false},
		"an acknowledgment": {rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCAcknowledge, DestQPN: 1}}, false},
	} {
		if got := isManagement(c.p.AppendTo(nil)); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
