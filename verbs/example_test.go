package verbs_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// Two devices on an in-process network: one writes into the other's memory.
// With verbs.Open("127.0.0.1") and verbs.Open("127.0.0.2") instead, the same
// program runs over UDP.
func Example() {
	linkA, linkB := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	a, aq, _ := open(linkA, "hello, remote memory")
	b, bq, target := open(linkB, "")
	defer a.Close()
	defer b.Close()

	ctx := context.Background()
	must(aq.qp.Connect(ctx, bq.qp.Endpoint()))
	must(bq.qp.Connect(ctx, aq.qp.Endpoint()))

	must(aq.qp.PostSend(verbs.SendWR{
		ID:       1,
		Opcode:   verbs.OpWrite,
		SGList:   []verbs.SGE{aq.mr.Slice(0, 20)},
		Remote:   target.At(0),
		Signaled: true,
	}))
	var wc [1]verbs.WC
	_, err := aq.cq.Wait(ctx, wc[:])
	must(err)
	fmt.Println(wc[0].Opcode, wc[0].Status)
	fmt.Println(string(bq.mr.Bytes()[:20]))
	// Output:
	// RDMA_WRITE SUCCESS
	// hello, remote memory
}

type endpoint struct {
	pd *verbs.PD
	qp *verbs.QP
	cq *verbs.CQ
	mr *verbs.MR
}

func open(link verbs.Link, text string) (*verbs.Device, endpoint, verbs.RemoteMemory) {
	dev, err := verbs.OpenLink(link, verbs.Config{})
	must(err)
	pd, err := dev.AllocPD()
	must(err)
	buf := make([]byte, 4096)
	copy(buf, text)
	mr, err := pd.RegisterMemory(buf, verbs.LocalWrite|verbs.RemoteWrite)
	must(err)
	cq, err := dev.CreateCQ(16)
	must(err)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
	must(err)
	return dev, endpoint{pd, qp, cq, mr}, mr.Remote()
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
