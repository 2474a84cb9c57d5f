package verbs_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// Many requests with one doorbell. Only the last completes with an entry.
func ExampleBatch() {
	a, b, _, done := connected()
	defer done()
	mr, err := b.pd.RegisterMemory(make([]byte, 64), verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)
	must(err)
	peer := mr.Remote()
	batch := a.qp.NewBatch() // to be used again and again
	for i := range uint64(3) {
		batch.Write(peer.At(4 * i)).Inline([]byte("abc "))
	}
	batch.Read(peer.At(0), a.mr.Slice(100, 12)).Fence().ID(7).Signaled()
	must(batch.Post())
	var wc [2]verbs.WC
	n, err := a.cq.Wait(context.Background(), wc[:])
	must(err)
	must(wc[0].Err())
	fmt.Println(n, "completion, id", wc[0].ID)
	fmt.Printf("%s\n", a.mr.Bytes()[100:111])
	// Output:
	// 1 completion, id 7
	// abc abc abc
}

// A queue pair sends at most 100 Mb/s.
func ExampleQP_SetRateLimit() {
	a, _, target, done := connected()
	defer done()
	must(a.qp.SetRateLimit(100_000_000, 0))
	fmt.Println(a.qp.Query().RateLimit, "kb/s")
	began := time.Now()
	for range 32 { // 128 KiB, of which some bytes go at once
		must(a.carryOut(verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.mr.All()}, Remote: target.At(0)}))
	}
	fmt.Println(time.Since(began) > 5*time.Millisecond)
	must(a.qp.SetRateLimit(0, 0)) // as fast as it can
	// Output:
	// 100000 kb/s
	// true
}

// One goroutine sleeps on a channel for all completion queues of a device. A
// queue that was told of is armed again before it is polled, so that nothing is
// missed. Moderation makes it one notification for up to 16 completions, or
// after 50 µs.
func ExampleCompChannel() {
	a, b, target, done := connected()
	defer done()
	ctx := context.Background()
	dev := a.qp.Device()
	channel, err := dev.CreateCompChannel()
	must(err)
	for range 3 {
		cq, err := dev.CreateCQ(64, verbs.WithChannel(channel), verbs.WithTimestamps())
		must(err)
		must(cq.SetModeration(16, 50*time.Microsecond))
		qp, err := a.pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
		must(err)
		peer, err := b.pd.CreateQP(verbs.QPConfig{SendCQ: b.cq, RecvCQ: b.cq})
		must(err)
		must(qp.Connect(ctx, peer.Endpoint()))
		must(peer.Connect(ctx, qp.Endpoint()))
		cq.Arm(false)
		must(qp.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("x"), Remote: target.At(0), Signaled: true}))
	}
	var wc [16]verbs.WC
	for done := 0; done < 3; {
		cq, err := channel.Get(ctx)
		must(err)
		cq.Arm(false)
		for n := cq.Poll(wc[:]); n > 0; n = cq.Poll(wc[:]) {
			done += n
			age := time.Duration(dev.Now() - wc[0].Timestamp) // since it completed
			fmt.Println(wc[0].Opcode, wc[0].Status, age >= 0)
		}
	}
	// Output:
	// RDMA_WRITE SUCCESS true
	// RDMA_WRITE SUCCESS true
	// RDMA_WRITE SUCCESS true
}

// A program learns of what no completion tells: here, that a peer has used a
// wrong key.
func ExampleDevice_HandleEvents() {
	a, b, target, done := connected()
	defer done()
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan error)
	go func() {
		watched <- b.qp.Device().HandleEvents(ctx, func(e verbs.AsyncEvent) {
			fmt.Println(e.Event, e.QP == b.qp, e.QP.State())
			cancel()
		})
	}()
	wrong := target.At(0)
	wrong.RKey++
	err := a.carryOut(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("x"), Remote: wrong})
	<-watched
	fmt.Println(err != nil)
	// Output:
	// QP_ACCESS_ERR true ERR
	// true
}

// A region over a sparse file of 1 TiB costs nothing until it is touched.
func ExamplePD_MapFile_onDemand() {
	a, b, _, done := connected()
	defer done()
	f, err := os.CreateTemp("", "sparse")
	must(err)
	defer os.Remove(f.Name())
	defer f.Close()
	const size = 1 << 30 // or more: 1 << 40 where addresses have 64 bits
	must(f.Truncate(size))
	mr, err := b.pd.MapFile(f, 0, size, verbs.LocalWrite|verbs.RemoteWrite|verbs.OnDemand)
	must(err)
	defer mr.Close()
	must(a.carryOut(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("the end"), Remote: mr.RemoteAt(size - 7)}))
	end := make([]byte, 7)
	_, err = mr.ReadAt(end, size-7)
	must(err)
	fmt.Printf("%s\n", end)
	// Output: the end
}

// The receiver of a datagram answers without knowing the sender: the header and
// the completion identify it.
func ExamplePD_AHFromWC() {
	const qkey = 0x1234
	ctx := context.Background()
	linkA, linkB := fabric.Pair(netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"))
	devA, a, _ := open(linkA, "ping")
	defer devA.Close()
	devB, b, _ := open(linkB, "pong")
	defer devB.Close()
	var err error
	for _, e := range []*endpoint{&a, &b} {
		e.qp, err = e.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: e.cq, RecvCQ: e.cq})
		must(err)
		must(e.qp.Init())
		must(e.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{e.mr.Slice(1000, verbs.GRHLen+100)}}))
		must(e.qp.Activate(qkey))
	}
	peer := b.qp.Endpoint() // which a has got in some way
	ah, err := a.pd.CreateAH(verbs.AddressVector{DGID: peer.Addr})
	must(err)
	must(a.carryOut(verbs.SendWR{Opcode: verbs.OpSend, SGList: []verbs.SGE{a.mr.Slice(0, 4)},
		AH: ah, RemoteQPN: peer.QPN, RemoteQKey: peer.QKey}))

	var wc [1]verbs.WC
	_, err = b.cq.Wait(ctx, wc[:])
	must(err)
	buffer := b.mr.Bytes()[1000:][:wc[0].ByteLen] // header and data
	header, err := verbs.ParseGRH(buffer)
	must(err)
	fmt.Printf("%s from %v\n", buffer[verbs.GRHLen:], header.Src)
	back, err := b.pd.AHFromWC(wc[0], buffer)
	must(err)
	defer back.Close()
	must(b.carryOut(verbs.SendWR{Opcode: verbs.OpSend, SGList: []verbs.SGE{b.mr.Slice(0, 4)},
		AH: back, RemoteQPN: wc[0].SrcQPN, RemoteQKey: qkey}))
	_, err = a.cq.Wait(ctx, wc[:])
	must(err)
	fmt.Printf("%s\n", a.mr.Bytes()[1000+verbs.GRHLen:][:wc[0].ByteLen-verbs.GRHLen])
	// Output:
	// ping from 2001:db8::1
	// pong
}
