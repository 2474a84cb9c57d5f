package rocev2_test

import (
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
)

// A packet is encoded, sealed for the addresses that it travels between,
// checked and decoded again.
func Example() {
	flow := rocev2.NewFlow(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), 49441, rocev2.UDPPort)
	sent := rocev2.Packet{
		BTH:     rocev2.BTH{Opcode: rocev2.RCSendOnly, PKey: rocev2.DefaultPKey, DestQPN: 0x11, AckReq: true, PSN: 1},
		Payload: []byte("ping"),
	}
	b := make([]byte, 0, rocev2.MaxPacketLen)
	b = sent.AppendTo(b)
	b = flow.Seal(0x1234, b)
	fmt.Printf("%x\n", b)

	// A UDP socket does not show the receiver the Identification, which was
	// 0x1234.
	id, ok := flow.Recover(b)
	fmt.Printf("%#x %t\n", id, ok)

	var received rocev2.Packet
	if err := received.Parse(b); err != nil {
		fmt.Println(err)
	}
	fmt.Println(received.BTH.Opcode, received.BTH.DestQPN, received.BTH.PSN, string(received.Payload))
	// Output:
	// 0400ffff000000118000000170696e674eadb565
	// 0x1234 true
	// RC_SEND_ONLY 0x000011 1 ping
}
