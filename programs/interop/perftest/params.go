package perftest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
)

// The version item of the originals is a short text in 16 bytes of which only
// the number at the beginning is read. This software marks the bytes after it;
// two that find each other's mark exchange one item more, with what must be
// alike on both sides, so that a difference is named instead of waited for.
const (
	ownMark   = "\x00rocev2\x01" // after the number; the last byte counts the forms of params
	paramsLen = 64
)

// params is what both sides say that they will run.
//
//	0: verb, 1: kind, 2: flags, 3: atomic operation
//	4: queue pairs (32 bits)
//	8: message size, 16: iterations, 24: duration in ns (64 bits each)
//	32: transport service, 33: reserved
type params struct {
	test       Test
	flags      uint8
	atomic     AtomicOp
	qps        uint32
	size       uint64
	iterations uint64
	duration   uint64
	service    interop.Service
}

const (
	flagBidirectional = 1 << iota
	flagAllSizes
	flagEndless
	flagCM // the queue pairs are connected by the connection manager
)

func (c *Config) params() params {
	p := params{
		test: c.Test, atomic: c.Atomic, qps: uint32(c.QPs), size: uint64(c.Size),
		iterations: uint64(c.Iterations), duration: uint64(c.Duration), service: c.Service,
	}
	for flag, on := range map[uint8]bool{flagBidirectional: c.Bidirectional, flagAllSizes: c.AllSizes, flagEndless: c.Endless, flagCM: c.CM == CMAll} {
		if on {
			p.flags |= flag
		}
	}
	return p
}

// config makes the configuration of a side that runs what the parameters say.
// Numbers beyond every limit stay beyond it.
func (p params) config() Config {
	return Config{
		Test: p.test, Service: p.service, Atomic: p.atomic, QPs: int(min(p.qps, math.MaxInt32)),
		Size: int(min(p.size, math.MaxInt32)), Iterations: int(min(p.iterations, math.MaxInt32)), Duration: time.Duration(min(p.duration, math.MaxInt64)),
		Bidirectional: p.flags&flagBidirectional != 0, AllSizes: p.flags&flagAllSizes != 0, Endless: p.flags&flagEndless != 0,
	}
}

func (p params) append(b []byte) []byte {
	b = append(b, byte(p.test.Verb), byte(p.test.Kind), p.flags, byte(p.atomic))
	b = binary.BigEndian.AppendUint32(b, p.qps)
	for _, v := range []uint64{p.size, p.iterations, p.duration} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = append(b, byte(p.service))
	return append(b, make([]byte, paramsLen-len(b))...)
}

func parseParams(b []byte) (params, error) {
	p := params{
		test: Test{Verb(b[0]), Kind(b[1])}, flags: b[2], atomic: AtomicOp(b[3]), qps: binary.BigEndian.Uint32(b[4:]),
		size: binary.BigEndian.Uint64(b[8:]), iterations: binary.BigEndian.Uint64(b[16:]), duration: binary.BigEndian.Uint64(b[24:]), service: interop.Service(b[32]),
	}
	if p.test.Verb > Atomic || p.test.Kind > Latency || !p.service.Valid() {
		return p, &interop.ProtocolError{Step: "parameters", Got: b, Want: "a test that this version knows"}
	}
	return p, nil
}

// differs says in which of the things that must be alike the peer differs.
func (p params) differs(peer params, role interop.Role) error {
	if p.test != peer.test {
		return fmt.Errorf("the two sides run different tests: %v here, %v there", p.test, peer.test)
	}
	var list []string
	add := func(what string, here, there any) {
		if here != there {
			list = append(list, fmt.Sprintf("%s: %v here, %v there", what, here, there))
		}
	}
	both := func(flag uint8) bool { return (p.flags|peer.flags)&flag != 0 }
	onOff := func(flags, flag uint8) string {
		if flags&flag != 0 {
			return "yes"
		}
		return "no"
	}
	add("connection (-c)", p.service, peer.service)
	add("queue pairs (-q)", p.qps, peer.qps)
	add("both directions (-b)", onOff(p.flags, flagBidirectional), onOff(peer.flags, flagBidirectional))
	add("queue pairs connected by the connection manager (-R)", onOff(p.flags, flagCM), onOff(peer.flags, flagCM))
	if p.test.clientOnly() && !both(flagBidirectional) {
		// The server only answers: all that it needs is room.
		server, client := p, peer
		if role == interop.Client {
			server, client = peer, p
		}
		if client.size > server.size {
			add("message size in bytes (-s, -a)", p.size, peer.size)
		}
	} else {
		add("all sizes (-a)", onOff(p.flags, flagAllSizes), onOff(peer.flags, flagAllSizes))
		add("message size in bytes (-s)", p.size, peer.size)
		add("run without end (--run_infinitely)", onOff(p.flags, flagEndless), onOff(peer.flags, flagEndless))
		if !both(flagEndless) {
			add("duration (-D)", time.Duration(p.duration), time.Duration(peer.duration))
			if p.duration == 0 && peer.duration == 0 {
				add("iterations (-n)", p.iterations, peer.iterations)
			}
		}
	}
	if list == nil {
		return nil
	}
	return errors.New("the two sides run different tests: " + strings.Join(list, "; "))
}
