//go:build linux

package ucma_test

import (
	"testing"

	"github.com/gosoftroce/rocev2/programs/ucma/abi"
	"github.com/gosoftroce/rocev2/rdma/cm"
)

// FuzzCommands gives a client of a device that talks to itself whatever
// commands. Each is a byte for the command, one for an ID, one for the length
// of the rest, and the rest, which lies over a command that would be good.
func FuzzCommands(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 0, 0, 7, 0, 0, 3, 1, 0, 12, 0, 0, 4, 1, 0, 6, 1, 0, 12, 0, 0, 8, 2, 0})
	f.Add([]byte{0, 0, 0, 16, 0, 4, 1, 2, 3, 4, 17, 0, 0, 18, 0, 0, 1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		h := network(t, "192.0.2.1")
		p := start(t, h[0])
		first := p.create(cm.TCP, 1)
		p.create(cm.UDP, 2)
		for n := 0; len(b) >= 3 && n < 200; n++ {
			number, id, size := abi.Number(b[0]%24), first+uint32(b[1]%8), int(b[2])
			b = b[3:]
			size = min(size, len(b))
			body := good(number, id, h[0])
			copy(body, b[:size])
			b = b[size:]
			r := raw(p.c, number, 4096, body)
			if len(r.Resp) > 4096 {
				t.Fatalf("command %d: %d bytes for room of 4096", number, len(r.Resp))
			}
		}
		must(t, p.c.Close())
	})
}

// good returns a command that an ID in the right state takes.
func good(n abi.Number, id uint32, h *host) []byte {
	switch n {
	case abi.CreateID:
		return join(u64(3), response, u16(uint16(cm.TCP)), make([]byte, 6))
	case abi.BindIP:
		return join(response, in6(at(h, 7471)), u32(id))
	case abi.ResolveIP:
		return join(make([]byte, 28), in6(at(h, 7471)), u32(id), u32(0))
	case abi.Connect:
		return join(param(77, "x"), u32(id), u32(0), u64(0))
	case abi.Accept:
		return join(u64(5), param(78, "y"), u32(id), u32(0), u64(0))
	case abi.Reject:
		return join(u32(id), u32(0), make([]byte, 256))
	case abi.SetOption:
		return join(response, u32(id), u32(0), u32(0), u32(1))
	case abi.JoinIPMulticast:
		return join(response, u64(9), in6(at(h, 0)), u32(id))
	case abi.Bind:
		return join(u32(id), u16(16), u16(0), pad(sockaddr(at(h, 0)), 128))
	case abi.ResolveAddr:
		return join(u32(id), u32(0), u16(0), u16(16), u32(0), make([]byte, 128), pad(sockaddr(at(h, 7471)), 128))
	case abi.JoinMulticast:
		return join(response, u64(9), u32(id), u16(16), u16(0), pad(sockaddr(at(h, 0)), 128))
	case abi.ResolveRoute, abi.Listen, abi.Disconnect, abi.Notify:
		return join(u32(id), u32(4))
	}
	return join(response, u32(id), u32(1))
}
