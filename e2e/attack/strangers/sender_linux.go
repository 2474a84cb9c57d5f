package strangers

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// flood is a stream of forged REQs, each of another connection.
type flood struct {
	to      netip.AddrPort // the service
	private []byte         // of the program that seems to ask
	many    bool           // from many sources; else from one
	rate    int            // a second
}

// source is that of a flood from one; the others are in 127/8, too.
var source = netip.AddrFrom4([4]byte{127, 200, 0, 9})

const (
	ipLen, udpLen = 20, 8
	batch         = 64
)

// sender forges packets on a raw socket.
type sender struct {
	flood
	conn *ipv4.RawConn
	rng  *rand.Rand
	out  []ipv4.Message
}

func newSender(f flood) (*sender, error) {
	c, err := net.ListenPacket("ip4:255", "127.0.0.1")
	if err != nil {
		return nil, fmt.Errorf("open a raw socket (it needs CAP_NET_RAW): %w", err)
	}
	raw, err := ipv4.NewRawConn(c)
	if err != nil {
		c.Close()
		return nil, err
	}
	s := &sender{flood: f, conn: raw, rng: rand.New(rand.NewPCG(rand.Uint64(), 1))}
	for range batch {
		s.out = append(s.out, ipv4.Message{Buffers: [][]byte{make([]byte, 0, 512)}, Addr: &net.IPAddr{IP: f.to.Addr().AsSlice()}})
	}
	return s, nil
}

// run floods until ctx ends. It returns how many packets went in which time.
func (s *sender) run(ctx context.Context) (sent int, took time.Duration, err error) {
	defer s.conn.Close()
	begin := time.Now()
	for ctx.Err() == nil {
		took = time.Since(begin)
		due := int(took.Seconds()*float64(s.rate)) - sent
		if due <= 0 {
			time.Sleep(time.Duration(float64(min(batch, s.rate/500+1)) / float64(s.rate) * 1e9))
			continue
		}
		due = min(due, batch)
		for i := range due {
			b := &s.out[i].Buffers[0]
			*b = s.packet((*b)[:0])
		}
		n, err := s.conn.WriteBatch(s.out[:due], 0)
		if err != nil {
			return sent, took, err
		}
		sent += n
	}
	return sent, time.Since(begin), nil
}

// packet is an IPv4 packet with a REQ.
func (s *sender) packet(b []byte) []byte {
	from := source
	if s.many {
		from = netip.AddrFrom4([4]byte{127, byte(s.rng.UintN(150)) + 50, byte(s.rng.Uint32()), byte(s.rng.Uint32())})
	}
	to := s.to.Addr()
	ip := mad.IPHeader{SourcePort: uint16(1 + s.rng.UintN(65535)), Source: from, Destination: to}
	req := mad.REQ{
		TransactionID: s.rng.Uint64(), LocalID: mad.CommID(1 + s.rng.Uint32()>>1), LocalGUID: mad.GUID(s.rng.Uint64()),
		LocalQPN: rocev2.QPN(2 + s.rng.UintN(1<<23)), ServiceID: cm.TCP.Service(s.to.Port()),
		ResponderResources: 16, InitiatorDepth: 16,
		RemoteResponseTimeout: 20, LocalResponseTimeout: 20, RetryCount: 7, RNRRetryCount: 7,
		PKey: rocev2.DefaultPKey, PathMTU: 3, MaxRetries: 15,
		Primary: mad.Path{LocalGID: from, RemoteGID: to, HopLimit: 64, AckTimeout: 14},
		Private: append(ip.AppendTo(nil), s.private...),
	}
	var m [mad.Len]byte
	p := rocev2.Packet{
		BTH:     rocev2.BTH{Opcode: rocev2.UDSendOnly, PKey: rocev2.DefaultPKey, DestQPN: rocev2.GSIQPN, PSN: rocev2.PSN(s.rng.Uint32()) & rocev2.PSNMask},
		DETH:    rocev2.DETH{QKey: 0x80010000, SrcQPN: rocev2.GSIQPN},
		Payload: req.AppendTo(m[:0]),
	}
	b = p.AppendTo(b[:ipLen+udpLen])
	port := uint16(0xc000 + s.rng.UintN(0x3fff))
	flow := rocev2.NewFlow(from, to, port, rocev2.UDPPort)
	b = b[:ipLen+udpLen+len(flow.Seal(0, b[ipLen+udpLen:]))] // it appends in place
	clear(b[:ipLen+udpLen])
	be := binary.BigEndian
	b[0], b[6], b[8], b[9] = 0x45, 0x40, 64, 17 // don't fragment, UDP; the kernel fills in the checksum
	be.PutUint16(b[2:], uint16(len(b)))
	f4, t4 := from.As4(), to.As4()
	copy(b[12:], f4[:])
	copy(b[16:], t4[:])
	be.PutUint16(b[20:], port)
	be.PutUint16(b[22:], rocev2.UDPPort)
	be.PutUint16(b[24:], uint16(len(b)-ipLen))
	return b
}
