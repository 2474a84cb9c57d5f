package verbs_test

import (
	"context"
	"fmt"

	"github.com/gosoftroce/rocev2/verbs"
)

// carryOut posts a request and waits until it has completed.
func (e endpoint) carryOut(wr verbs.SendWR) error {
	wr.Signaled = true
	must(e.qp.PostSend(wr))
	var wc [1]verbs.WC
	_, err := e.cq.Wait(context.Background(), wc[:])
	must(err)
	return wc[0].Err()
}

// A window lets the peer write to 16 bytes of a region, until it is ended.
func ExampleMW() {
	a, b, _, done := connected()
	defer done()
	mr, err := b.pd.AllocMemory(4096, verbs.LocalWrite|verbs.MWBind)
	must(err)
	mw, err := b.pd.AllocMW(verbs.MWType2)
	must(err)

	must(b.carryOut(mw.BindTo(mr, 1024, 16, verbs.RemoteWrite)))
	remote := mw.Remote() // for the peer
	must(a.carryOut(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("hello"), Remote: remote.At(0)}))
	fmt.Printf("%s\n", mr.Bytes()[1024:1029])

	must(b.carryOut(mw.Unbind()))
	err = a.carryOut(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("again"), Remote: remote.At(0)})
	fmt.Println(err != nil)
	// Output:
	// hello
	// true
}

// A fast registration, and a message that is posted with it.
func ExampleFastMR() {
	_, b, _, done := connected()
	defer done()
	fast, err := b.pd.AllocFastMR(1 << 20)
	must(err)
	must(fast.Map(make([]byte, 4096), make([]byte, 100)))
	reg := fast.Register(0x1000, verbs.LocalWrite|verbs.RemoteWrite)
	// The peer may be told reg.Reg.NewKey by a message after reg.
	must(b.carryOut(reg))
	fmt.Println(fast.Valid(), fast.RKey() == reg.Reg.NewKey)
	must(b.carryOut(fast.Invalidate()))
	fmt.Println(fast.Valid())
	// Output:
	// true true
	// false
}

// One key for all buffers that the program allows.
func ExamplePD_RegisterImplicit() {
	a, b, _, done := connected()
	defer done()
	imr, err := b.pd.RegisterImplicit(verbs.LocalWrite | verbs.RemoteWrite)
	must(err)
	buf := make([]byte, 64)
	must(imr.Allow(buf))
	remote := imr.Remote(buf) // for the peer
	must(a.carryOut(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("hello"), Remote: remote.At(0)}))
	fmt.Printf("%s\n", buf[:5])
	must(imr.Forbid(buf))
	err = a.carryOut(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("again"), Remote: remote.At(0)})
	fmt.Println(err != nil)
	// Output:
	// hello
	// true
}
