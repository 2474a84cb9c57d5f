package dissect_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/psp"
)

// sealer seals what one end of a connection sends.
type sealer struct {
	spi     uint32
	version psp.Version
	secret  []byte
	chain   *psp.Chain
	key     *psp.Key // the present one
	iv      uint64
}

func newSealer(t testing.TB, spi uint32, v psp.Version) *sealer {
	t.Helper()
	s := &sealer{spi: spi, version: v, secret: bytes.Repeat([]byte{byte(spi), byte(spi >> 24), 3, 5}, 8)[:v.KeyLen()]}
	var err error
	if s.chain, err = psp.NewChain(v, s.secret); err != nil {
		t.Fatal(err)
	}
	s.key = s.chain.Key(spi)
	return s
}

// next goes on to the next key.
func (s *sealer) next() {
	s.chain.Next()
	s.key, s.iv = s.chain.Key(s.spi), 0
}

// line is what a key log has of the key.
func (s *sealer) line(receiver netip.Addr) string {
	k := psp.LoggedKey{SPI: s.spi, Receiver: receiver, Key: s.secret}
	return string(k.AppendTo(nil))
}

// seal returns a sealed packet.
func (s *sealer) seal(src, dst netip.Addr, p rocev2.Packet) []byte {
	p.BTH.PKey = rocev2.DefaultPKey
	inner := seal(src, dst, 0, &p)
	udp := binary.BigEndian.AppendUint16(nil, sport)
	udp = binary.BigEndian.AppendUint16(udp, rocev2.UDPPort)
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(inner)))
	s.iv++
	return s.key.Seal(nil, &psp.Header{Next: psp.UDP, SPI: psp.Later(s.spi, s.chain.Generation()), IV: s.iv}, append(udp, 0, 0), inner)
}

// sealed adds a sealed packet.
func (c *traffic) sealed(s *sealer, src, dst netip.Addr, p rocev2.Packet) {
	c.id++
	c.add(dissect.LinkRaw, datagram(src, dst, c.id, s.seal(src, dst, p)))
}

func sendTo(psn rocev2.PSN, payload string) rocev2.Packet {
	return rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, DestQPN: qpB, PSN: psn, AckReq: true}, Payload: []byte(payload)}
}

func ackTo(psn rocev2.PSN) rocev2.Packet {
	return rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCAcknowledge, DestQPN: qpA, PSN: psn}, AETH: rocev2.AETH{Syndrome: rocev2.ACKNoCredits, MSN: 1}}
}

// conversation is sealed: a message, sent twice, an acknowledgement, a packet
// that is replayed, one that was changed, and a second key after some.
func conversation(t testing.TB) (c *traffic, log string) {
	c = &traffic{}
	toB, toA := newSealer(t, qpB, psp.GCM128), newSealer(t, qpA, psp.GCM256)
	c.sealed(toB, hostA, hostB, sendTo(100, "a secret"))
	c.sealed(toB, hostA, hostB, sendTo(100, "a secret"))
	c.sealed(toA, hostB, hostA, ackTo(100))
	toB.iv += 2 // two that the capture does not have
	c.sealed(toB, hostA, hostB, sendTo(103, "more"))
	c.frames = append(c.frames, c.frames[0])
	changed := bytes.Clone(c.frames[3].Data)
	changed[len(changed)-20] ^= 1
	c.add(dissect.LinkRaw, changed)
	toB.next()
	c.sealed(toB, hostA, hostB, sendTo(104, "with another key"))
	c.sealed(toA, hostB, hostA, ackTo(104))
	return c, "# a log\nCLIENT_TRAFFIC_SECRET_0 00 11\n" + toB.line(hostB) + toA.line(hostA)
}

// shown is a packet with its line.
type shown struct {
	dissect.Packet
	line string
}

// opened analyses a capture with a key log.
func opened(t *testing.T, c *traffic, log string) (all []shown, capture *dissect.Capture) {
	t.Helper()
	capture = dissect.New(c, dissect.Limits{})
	if err := capture.Keys().Follow(strings.NewReader(log), "keys.log"); err != nil {
		t.Fatal(err)
	}
	for {
		p, err := capture.Next()
		if err != nil {
			return all, capture
		}
		all = append(all, shown{*p, dissect.Line(p)})
	}
}
