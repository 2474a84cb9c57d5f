package cm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// machine is a host of the examples: a device on a network inside the process,
// and a queue pair with a receive posted. With a device on an address of the
// machine, by verbs.Open("192.0.2.1"), the rest is the same.
type machine struct {
	dev *verbs.Device
	pd  *verbs.PD
	cq  *verbs.CQ
	mr  *verbs.MR
	qp  *verbs.QP
}

func twoMachines() (client, server *machine) {
	a, b := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	return newMachine(a, verbs.Config{}), newMachine(b, verbs.Config{})
}

func newMachine(link verbs.Link, c verbs.Config) *machine {
	m := new(machine)
	var err error
	check := func() {
		if err != nil {
			panic(err)
		}
	}
	m.dev, err = verbs.OpenLink(link, c)
	check()
	m.pd, err = m.dev.AllocPD()
	check()
	m.cq, err = m.dev.CreateCQ(16)
	check()
	m.mr, err = m.pd.RegisterMemory(make([]byte, 256), verbs.LocalWrite)
	check()
	m.qp, err = m.pd.CreateQP(verbs.QPConfig{SendCQ: m.cq, RecvCQ: m.cq})
	check()
	err = m.qp.Init()
	check()
	err = m.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{m.mr.Slice(0, 256)}})
	check()
	return m
}

// message waits for the next message.
func (m *machine) message(ctx context.Context) string {
	for wc, err := range m.cq.Completions(ctx) {
		if err != nil {
			return err.Error()
		}
		if wc.Opcode == verbs.WCRecv {
			return string(m.mr.Bytes()[:wc.ByteLen])
		}
	}
	return ""
}

// A server takes one request and answers it with a queue pair; a client dials.
func ExampleListen() {
	client, server := twoMachines()
	defer client.dev.Close()
	defer server.dev.Close()
	ctx := context.Background()

	l, err := cm.Listen(server.dev, netip.MustParseAddrPort("192.0.2.2:7471"), cm.ListenConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		req, err := l.Accept(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("a request with %q\n", bytes.TrimRight(req.PrivateData(), "\x00"))
		conn, err := req.Accept(ctx, server.qp, cm.AcceptConfig{PrivateData: []byte("welcome")})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("the server has", server.message(ctx))
		<-conn.Done()
		fmt.Println(conn.Err())
	}()

	conn, err := cm.Dial(ctx, client.qp, netip.MustParseAddrPort("192.0.2.2:7471"), cm.DialConfig{PrivateData: []byte("hello")})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("connected with %v: %q\n", conn.RemoteAddr(), bytes.TrimRight(conn.PrivateData(), "\x00"))
	_ = client.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("a message"), Signaled: true})
	for wc, err := range client.cq.Completions(ctx) { // it has arrived
		if err != nil || wc.Opcode == verbs.WCSend {
			break
		}
	}
	_ = conn.Disconnect(ctx)
	<-served
	// Unordered output:
	// a request with "hello"
	// connected with 192.0.2.2:7471: "welcome"
	// the server has a message
	// cm: disconnected by the peer
}

// No program listens, so the peer rejects.
func ExampleDial() {
	client, server := twoMachines()
	defer client.dev.Close()
	defer server.dev.Close()
	l, err := cm.Listen(server.dev, netip.AddrPort{}, cm.ListenConfig{}) // some other port
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	_, err = cm.Dial(context.Background(), client.qp, netip.MustParseAddrPort("192.0.2.2:7"), cm.DialConfig{})
	fmt.Println(err)
	// Output: cm: dial 192.0.2.2:7: cm: rejected by the peer: invalid service ID: no program listens there (reason 8); start the server first, give both sides the same port, or wait for it (WaitForServer)
}

// A client asks which queue pair serves a port, and sends it a datagram. That
// makes no connection.
func ExampleResolve() {
	client, server := twoMachines()
	defer client.dev.Close()
	defer server.dev.Close()
	client.activate()
	server.activate()
	ctx := context.Background()

	l, err := cm.Listen(server.dev, netip.MustParseAddrPort("192.0.2.2:7471"), cm.ListenConfig{Type: verbs.UD})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	go func() {
		for {
			req, err := l.Accept(ctx)
			if err != nil {
				return // the listener is closed
			}
			fmt.Printf("a client looks for %q\n", bytes.TrimRight(req.PrivateData(), "\x00"))
			// The answer names the queue pair and its Q_Key.
			if _, err := req.Accept(ctx, server.qp, cm.AcceptConfig{PrivateData: []byte("it is here")}); err != nil {
				fmt.Println(err)
			}
		}
	}()

	service, err := cm.Resolve(ctx, client.dev, netip.MustParseAddrPort("192.0.2.2:7471"), cm.ResolveConfig{PrivateData: []byte("the log")})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("the answer is %q\n", bytes.TrimRight(service.PrivateData(), "\x00"))
	ah, err := service.AddressHandle(client.pd)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ah.Close()
	err = client.qp.PostSend(verbs.SendWR{
		Opcode: verbs.OpSend, Inline: []byte("a line"),
		AH: ah, RemoteQPN: service.QPN, RemoteQKey: service.QKey,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	text := server.message(ctx)[verbs.GRHLen:]
	fmt.Println("the server has", text)

	_, err = cm.Resolve(ctx, client.dev, netip.MustParseAddrPort("192.0.2.2:7"), cm.ResolveConfig{})
	fmt.Println("no program serves port 7:", errors.Is(err, syscall.ECONNREFUSED))
	// Output:
	// a client looks for "the log"
	// the answer is "it is here"
	// the server has a line
	// no program serves port 7: true
}

// activate gives a machine a queue pair for datagrams, with a receive posted.
func (m *machine) activate() {
	qp, err := m.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: m.cq, RecvCQ: m.cq})
	if err == nil {
		err = qp.Init()
	}
	if err == nil {
		err = qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{m.mr.Slice(0, 256)}})
	}
	if err == nil {
		err = qp.Activate(cm.QKey)
	}
	if err != nil {
		panic(err)
	}
	m.qp = qp
}

// The calls and events of librdmacm.
func ExampleEventChannel() {
	client, server := twoMachines()
	defer client.dev.Close()
	defer server.dev.Close()
	ctx := context.Background()
	next := func(who string, ch *cm.EventChannel) *cm.ID {
		e, err := ch.Get(ctx)
		if err != nil {
			fmt.Println(err)
			return nil
		}
		fmt.Println(who, e.Type)
		return e.ID
	}
	config := func(m *machine) verbs.QPConfig { return verbs.QPConfig{SendCQ: m.cq, RecvCQ: m.cq} }

	passive := cm.NewEventChannel(cm.WithDevices(server.dev))
	defer passive.Close()
	listener, _ := passive.CreateID(cm.TCP, nil)
	_ = listener.BindAddr(netip.MustParseAddrPort("192.0.2.2:7471"))
	_ = listener.Listen(8)

	active := cm.NewEventChannel(cm.WithDevices(client.dev))
	defer active.Close()
	id, _ := active.CreateID(cm.TCP, nil)
	_ = id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort("192.0.2.2:7471"), 0)
	next("active ", active)
	_ = id.ResolveRoute(0)
	next("active ", active)
	_, _ = id.CreateQP(client.pd, config(client))
	_ = id.Connect(nil)

	request := next("passive", passive)
	_, _ = request.CreateQP(server.pd, config(server))
	_ = request.Accept(nil)
	next("active ", active)
	next("passive", passive)
	_ = id.Disconnect()
	next("passive", passive)
	_ = request.Disconnect()
	next("active ", active)
	// Output:
	// active  RDMA_CM_EVENT_ADDR_RESOLVED
	// active  RDMA_CM_EVENT_ROUTE_RESOLVED
	// passive RDMA_CM_EVENT_CONNECT_REQUEST
	// active  RDMA_CM_EVENT_ESTABLISHED
	// passive RDMA_CM_EVENT_ESTABLISHED
	// passive RDMA_CM_EVENT_DISCONNECTED
	// active  RDMA_CM_EVENT_DISCONNECTED
}
