package fabric_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// A cable is cut under a connection: the requester gives up after its retries.
func ExamplePort_Cut() {
	sw := fabric.NewSwitch(fabric.Config{})
	a, b := newHost(sw, "192.0.2.1"), newHost(sw, "192.0.2.2")
	defer a.dev.Close()
	defer b.dev.Close()
	// 4.1 ms of silence, twice, are enough.
	connect(a, b, verbs.ConnectConfig{Timeout: 10, RetryCount: verbs.Set(1)})

	fmt.Println(a.write(b, "one"))
	b.port.Cut()
	fmt.Println(errors.Is(a.write(b, "two"), verbs.StatusRetryExcErr))

	b.port.Plug()
	for _, q := range []*verbs.QP{a.qp, b.qp} {
		must(q.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState))
	}
	connect(a, b, verbs.ConnectConfig{})
	fmt.Println(a.write(b, "three"))
	// Output:
	// <nil>
	// true
	// <nil>
}

// Packets get lost from some moment on. The connection repairs it.
func ExamplePort_SetLoss() {
	sw := fabric.NewSwitch(fabric.Config{Seed: 1})
	a, b := newHost(sw, "192.0.2.1"), newHost(sw, "192.0.2.2")
	defer a.dev.Close()
	defer b.dev.Close()
	connect(a, b, verbs.ConnectConfig{})
	fmt.Println(a.write(b, "one"), b.port.Counters().Lost)

	b.port.SetLoss(0.1)
	for b.port.Counters().Lost < 3 {
		must(a.write(b, "two"))
	}
	fmt.Println(string(b.mr.Bytes()[:3]))
	// Output:
	// <nil> 0
	// two
}

type host struct {
	dev  *verbs.Device
	port *fabric.Port
	pd   *verbs.PD
	cq   *verbs.CQ
	qp   *verbs.QP
	mr   *verbs.MR
}

func newHost(sw *fabric.Switch, addr string) *host {
	h := &host{}
	var err error
	h.port, err = sw.Attach(netip.MustParseAddr(addr))
	must(err)
	h.dev, err = verbs.OpenLink(h.port, verbs.Config{})
	must(err)
	h.pd, err = h.dev.AllocPD()
	must(err)
	h.cq, err = h.dev.CreateCQ(16)
	must(err)
	h.qp, err = h.pd.CreateQP(verbs.QPConfig{SendCQ: h.cq, RecvCQ: h.cq})
	must(err)
	h.mr, err = h.pd.RegisterMemory(make([]byte, 64), verbs.LocalWrite|verbs.RemoteWrite)
	must(err)
	return h
}

func connect(a, b *host, c verbs.ConnectConfig) {
	must(a.qp.Connect(context.Background(), b.qp.Endpoint(), verbs.WithConfig(c)))
	must(b.qp.Connect(context.Background(), a.qp.Endpoint(), verbs.WithConfig(c)))
}

// write writes into the other's memory and waits for the outcome.
func (h *host) write(to *host, text string) error {
	must(h.qp.PostSend(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte(text), Remote: to.mr.RemoteAt(0), Signaled: true}))
	var wc [1]verbs.WC
	_, err := h.cq.Wait(context.Background(), wc[:])
	must(err)
	return wc[0].Err()
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
