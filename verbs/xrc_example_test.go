package verbs_test

import (
	"context"
	"fmt"

	"github.com/gosoftroce/rocev2/verbs"
)

// One connection serves two programs of a host: each has a shared receive queue
// in the XRC domain, and the sender names the one that a message is for.
func ExampleXRCD() {
	client, server, _, done := connected()
	defer done()
	ctx := context.Background()
	dev := server.qp.Device()
	xrcd, err := dev.OpenXRCD()
	must(err)
	target, err := server.pd.CreateQP(verbs.QPConfig{Type: verbs.XRCTarget, XRCD: xrcd})
	must(err)
	initiator, err := client.pd.CreateQP(verbs.QPConfig{Type: verbs.XRCInitiator, SendCQ: client.cq})
	must(err)
	must(target.Connect(ctx, initiator.Endpoint()))
	must(initiator.Connect(ctx, target.Endpoint()))
	for i, program := range []string{"alice", "bob"} {
		cq, err := dev.CreateCQ(16)
		must(err)
		srq, err := server.pd.CreateSRQ(verbs.SRQConfig{XRCD: xrcd, CQ: cq})
		must(err)
		must(srq.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{server.mr.Slice(64*i, 64)}}))
		must(initiator.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("hello " + program), RemoteSRQN: srq.Number()}))
		var wc [1]verbs.WC
		_, err = cq.Wait(ctx, wc[:])
		must(err)
		fmt.Println(program, "has got:", string(server.mr.Bytes()[64*i:][:wc[0].ByteLen]))
	}
	// Output:
	// alice has got: hello alice
	// bob has got: hello bob
}
