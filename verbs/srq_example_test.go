package verbs_test

import (
	"context"
	"fmt"

	"github.com/gosoftroce/rocev2/verbs"
)

// A server has one pool of receives for all its clients, and is told when the
// pool runs low.
func ExampleSRQ() {
	client, server, _, done := connected()
	defer done()
	ctx := context.Background()
	srq, err := server.pd.CreateSRQ(verbs.SRQConfig{MaxWR: 64, Limit: 2})
	must(err)
	for i := range 3 {
		must(srq.PostRecv(verbs.RecvWR{ID: uint64(i), SGList: []verbs.SGE{server.mr.Slice(64*i, 64)}}))
	}
	for range 2 { // two clients
		own, err := server.pd.CreateQP(verbs.QPConfig{SendCQ: server.cq, RecvCQ: server.cq, SRQ: srq})
		must(err)
		peer, err := client.pd.CreateQP(verbs.QPConfig{SendCQ: client.cq, RecvCQ: client.cq})
		must(err)
		must(own.Connect(ctx, peer.Endpoint()))
		must(peer.Connect(ctx, own.Endpoint()))
		must(peer.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("a message")}))
		var wc [1]verbs.WC
		_, err = server.cq.Wait(ctx, wc[:])
		must(err)
		from := srq.Device().QP(wc[0].QPN)
		fmt.Println("receive", wc[0].ID, string(server.mr.Bytes()[64*wc[0].ID:][:wc[0].ByteLen]), from == own)
	}
	event, err := srq.Device().AsyncEvent(ctx)
	must(err)
	fmt.Println(event.Event, "with", event.SRQ.Query().Posted, "left")
	// Output:
	// receive 0 a message true
	// receive 1 a message true
	// SRQ_LIMIT_REACHED with 1 left
}
