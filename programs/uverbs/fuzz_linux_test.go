package uverbs

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	fake "github.com/gosoftroce/rocev2/programs/uverbs/uverbstest"
)

// bodies are commands that would succeed, for mutations to begin with: the
// numbers of objects are those that exist.
func bodies(a *app) []any {
	at := a.addr(0)
	return []any{
		abi.GetContext: abi.GetContextReq{}, abi.QueryDevice: abi.QueryDeviceReq{}, abi.QueryPort: abi.QueryPortReq{PortNum: 1},
		abi.AllocPD: abi.AllocPDReq{}, abi.DeallocPD: abi.DeallocPDReq{}, abi.CreateAH: abi.CreateAHReq{Attr: *attrOfDest(ptr(a.dest()))},
		abi.DestroyAH: abi.DestroyAHReq{}, abi.RegMR: abi.RegMRReq{Start: at, HcaVa: at, Length: 4096, AccessFlags: 15},
		abi.ReregMR: abi.ReregMRReq{Start: at, HcaVa: at, Length: 4096, AccessFlags: 1, Flags: 7}, abi.DeregMR: abi.DeregMRReq{},
		abi.AllocMW: abi.AllocMWReq{MwType: 1}, abi.DeallocMW: abi.DeallocMWReq{}, abi.CreateCompChannel: abi.CreateCompChannelReq{},
		abi.CreateCQ: abi.CreateCQReq{CQInit: abi.CQInit{Cqe: 7}}, abi.ResizeCQ: abi.ResizeCQReq{Cqe: 15}, abi.DestroyCQ: abi.DestroyCQReq{},
		abi.ReqNotifyCQ: abi.ReqNotifyCQReq{}, abi.CreateQP: abi.CreateQPReq{QPInit: abi.QPInit{QpType: 2, MaxSendWr: 3, MaxRecvWr: 3, MaxSendSge: 1, MaxRecvSge: 1}},
		abi.QueryQP: abi.QueryQPReq{}, abi.ModifyQP: abi.ModifyQPReq{AttrMask: uint32(ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccess),
			QPValues: abi.QPValues{QpState: 1, PortNum: 1}, Dest: a.dest()}, abi.DestroyQP: abi.DestroyQPReq{}, abi.PostSend: abi.PostSendReq{},
		abi.AttachMcast: abi.McastReq{}, abi.DetachMcast: abi.McastReq{}, abi.CreateSRQ: abi.CreateSRQReq{SRQInit: abi.SRQInit{MaxWr: 3, MaxSge: 1}},
		abi.ModifySRQ: abi.ModifySRQReq{AttrMask: 3, MaxWr: 7, SrqLimit: 1}, abi.QuerySRQ: abi.QuerySRQReq{}, abi.DestroySRQ: abi.DestroySRQReq{},
		abi.CreateXSRQ: abi.CreateXSRQReq{SRQInit: abi.SRQInit{MaxWr: 3, MaxSge: 1}}, abi.NumCommands: nil,
	}
}

// FuzzClient has a program write commands with random fields to a live client,
// and garbage into its memory. It never panics, and others go on.
//
// The input is a list of steps of 8 bytes: a command, how it is extended, and
// two fields to change; or a place in memory and what is written there.
func FuzzClient(f *testing.F) {
	f.Add([]byte{24, 0, 0, 0, 0, 0, 0, 0, 26, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{18, 1, 8, 1, 0, 0, 0, 0, 19, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 2, 0, 0x10, 0, 1, 0, 20, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{32, 0, 0, 0, 0, 0, 0, 0, 33, 0, 0, 0, 0, 0, 0, 0, 34, 0, 0, 0, 0, 0, 0, 0, 35, 0, 0, 0, 0, 0, 0, 0})
	da, db := hosts(f)
	v := newVictim(f, da, db)
	f.Fuzz(func(t *testing.T, in []byte) {
		a := start(t, da)
		b := start(t, db)
		qa, _ := connected(ib.RC, a, b, a.newCQ(7), b.newCQ(7))
		a.newSRQ(3, 0)
		a.c.Post(qa.QpHandle)
		list := bodies(a)
		for n := 0; len(in) >= 8 && n < 64; n++ {
			step := in[:8]
			in = in[8:]
			if step[0] >= 0x80 { // write to memory
				off := int(binary.LittleEndian.Uint32(step[1:])) % (1 << 17)
				copy(a.mem[off:], step[5:])
				a.c.Post(uint32(step[7]) % 8)
				continue
			}
			r := a.c.Command(mutate(step, list))
			for _, file := range r.Files {
				unix.Close(file.FD)
			}
		}
		a.exit()
		b.exit()
		v.use(t)
		v.talk()
		v.use(f)
	})
}

// mutate returns a command with two of its bytes changed.
func mutate(step []byte, list []any) []byte {
	c := abi.Command(step[0]) % abi.NumCommands
	body := list[c]
	var b []byte
	switch {
	case body == nil:
		b = fake.Plain(c, 1024, abi.PostSendReq{})
	case step[1]%4 == 3 && c == abi.CreateCQ:
		b = fake.Extended(c, 16, 16, abi.ExCreateCQReq{CQInit: abi.CQInit{Cqe: 7, CompChannel: -1}})
	case step[1]%4 == 3 && c == abi.CreateQP:
		b = fake.Extended(c, 40, 32, abi.ExCreateQPReq{QPInit: abi.QPInit{QpType: 4, MaxSendWr: 3, MaxRecvWr: 3}})
	case step[1]%4 == 3 && c == abi.ModifyQP:
		b = fake.Extended(c, 8, 0, abi.ExModifyQPReq{Base: body.(abi.ModifyQPReq)})
	default:
		b = fake.Plain(c, 1024, body)
	}
	if len(b) > 8 {
		b[8+int(step[2])%(len(b)-8)] ^= step[3]
		b[8+int(step[4])%(len(b)-8)] ^= step[5]
	}
	return b
}
