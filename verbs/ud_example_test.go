package verbs_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// A server answers datagrams of every client that knows its Q_Key. A client
// needs its Endpoint and an address handle; the server makes its own handle
// from what it receives.
func ExampleQP_Activate() {
	linkA, linkB := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	devA, client, _ := open(linkA, "ping")
	devB, server, _ := open(linkB, "")
	defer devA.Close()
	defer devB.Close()
	ctx := context.Background()
	const qkey = 0x11111111
	activate := func(e *endpoint) {
		var err error
		e.qp, err = e.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: e.cq, RecvCQ: e.cq})
		must(err)
		must(e.qp.Init()) // receives come before the first datagram
		must(e.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{e.mr.Slice(1024, verbs.GRHLen+100)}}))
		must(e.qp.Activate(qkey))
	}
	activate(&client)
	activate(&server)
	message := func(e endpoint) (verbs.WC, string) {
		var wc [1]verbs.WC
		for {
			_, err := e.cq.Wait(ctx, wc[:])
			must(err)
			must(wc[0].Err())
			if wc[0].Opcode == verbs.WCRecv {
				return wc[0], string(e.mr.Bytes()[1024:][verbs.GRHLen:wc[0].ByteLen])
			}
		}
	}

	to := server.qp.Endpoint()
	ah, err := client.pd.CreateAH(verbs.AddressVector{DGID: to.Addr})
	must(err)
	must(client.qp.PostSend(verbs.SendWR{
		Opcode: verbs.OpSend, SGList: []verbs.SGE{client.mr.Slice(0, 4)},
		AH: ah, RemoteQPN: to.QPN, RemoteQKey: to.QKey,
	}))

	wc, text := message(server)
	fmt.Println("the server has", text)
	back, err := server.pd.AHFromWC(wc, server.mr.Bytes()[1024:])
	must(err)
	defer back.Close()
	must(server.qp.PostSend(verbs.SendWR{
		Opcode: verbs.OpSend, Inline: []byte("pong"),
		AH: back, RemoteQPN: wc.SrcQPN, RemoteQKey: qkey,
	}))
	_, text = message(client)
	fmt.Println("the client has", text)
	// Output:
	// the server has ping
	// the client has pong
}

// An unreliable connection is made as a reliable one. A WRITE completes when it
// has left. Whether it has arrived only an answer of the peer would tell: here
// immediate data wakes the peer up.
func ExampleQP_Connect_unreliable() {
	linkA, linkB := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	devA, a, _ := open(linkA, "hello, remote memory")
	devB, b, target := open(linkB, "")
	defer devA.Close()
	defer devB.Close()
	ctx := context.Background()
	for _, e := range []*endpoint{&a, &b} {
		var err error
		e.qp, err = e.pd.CreateQP(verbs.QPConfig{Type: verbs.UC, SendCQ: e.cq, RecvCQ: e.cq})
		must(err)
	}
	must(a.qp.Connect(ctx, b.qp.Endpoint()))
	must(b.qp.Connect(ctx, a.qp.Endpoint()))
	must(b.qp.PostRecv(verbs.RecvWR{ID: 1}))

	must(a.qp.PostSend(verbs.SendWR{
		Opcode: verbs.OpWriteImm, Imm: 7,
		SGList: []verbs.SGE{a.mr.Slice(0, 20)}, Remote: target.At(0),
	}))
	var wc [1]verbs.WC
	_, err := b.cq.Wait(ctx, wc[:])
	must(err)
	fmt.Println(wc[0].Opcode, wc[0].Imm, string(b.mr.Bytes()[:20]))
	// Output:
	// RECV_RDMA_WITH_IMM 7 hello, remote memory
}
