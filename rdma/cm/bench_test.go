package cm_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// The benchmarks run against a server in a process of its own, over loopback.

const serverEnv = "ROCEV2_CM_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverEnv) != "" {
		if err := runServer(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// openLoopback opens a device on an unused loopback address.
func openLoopback() (*verbs.Device, error) {
	for {
		addr := netip.AddrFrom4([4]byte{127, byte(100 + rand.N(100)), byte(rand.N(256)), byte(1 + rand.N(250))})
		dev, err := verbs.OpenAddr(addr, verbs.Config{})
		if err == nil {
			return dev, nil
		}
		if open := (*verbs.OpenError)(nil); !errors.As(err, &open) || open.Op != "bind" {
			return nil, err
		}
	}
}

// small is for queue pairs of connections that carry little.
func small(cq *verbs.CQ) verbs.QPConfig {
	return verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}
}

// runServer accepts all, and answers each message with another. It ends with
// its standard input.
func runServer() error {
	dev, err := openLoopback()
	if err != nil {
		return err
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	cq, err := dev.CreateCQ(1 << 15)
	if err != nil {
		return err
	}
	mr, err := pd.RegisterMemory(make([]byte, 4096), verbs.LocalWrite)
	if err != nil {
		return err
	}
	l, err := cm.Listen(dev, netip.AddrPort{}, cm.ListenConfig{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	echo := os.Getenv(serverEnv) == "echo"
	go func() {
		for ctx.Err() == nil {
			serveOne(ctx, l, pd, cq, mr, echo)
		}
	}()
	if echo {
		go answerAll(ctx, dev, cq, mr)
	}
	fmt.Println(l.Addr())
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	_ = err // the end of the benchmark
	return nil
}

func serveOne(ctx context.Context, l *cm.Listener, pd *verbs.PD, cq *verbs.CQ, mr *verbs.MR, echo bool) {
	r, err := l.Accept(ctx)
	if err != nil {
		return
	}
	q, err := pd.CreateQP(small(cq))
	if err != nil {
		_ = r.Reject(nil)
		return
	}
	if echo {
		_ = q.Init()
		_ = q.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{mr.Slice(0, 64)}})
	}
	c, err := r.Accept(ctx, q, cm.AcceptConfig{})
	if err != nil {
		q.Close()
		return
	}
	c.AfterEnd(func() { q.Close() })
}

func answerAll(ctx context.Context, dev *verbs.Device, cq *verbs.CQ, mr *verbs.MR) {
	for wc, err := range cq.Completions(ctx) {
		if err != nil {
			return
		}
		if q := dev.QP(wc.QPN); q != nil && wc.Opcode == verbs.WCRecv && wc.Status == verbs.StatusSuccess {
			_ = q.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("pong"), Signaled: true})
		}
	}
}

// startServer starts the process of a server.
func startServer(b *testing.B, mode string) netip.AddrPort {
	b.Helper()
	_, addr := startProcess(b, mode)
	return addr
}

func startProcess(b *testing.B, mode string) (*exec.Cmd, netip.AddrPort) {
	b.Helper()
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), serverEnv+"="+mode)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(b, err)
	out, err := cmd.StdoutPipe()
	must(b, err)
	must(b, cmd.Start())
	b.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	must(b, err)
	addr, err := netip.ParseAddrPort(strings.TrimSpace(line))
	must(b, err)
	return cmd, addr
}

// benchClient is a client's device with one of everything.
func benchClient(b *testing.B) (*verbs.Device, *verbs.PD, *verbs.CQ, *verbs.MR) {
	b.Helper()
	dev, err := openLoopback()
	must(b, err)
	b.Cleanup(func() { dev.Close() })
	pd, err := dev.AllocPD()
	must(b, err)
	cq, err := dev.CreateCQ(1 << 15)
	must(b, err)
	mr, err := pd.RegisterMemory(make([]byte, 4096), verbs.LocalWrite)
	must(b, err)
	return dev, pd, cq, mr
}

// BenchmarkConnect makes connections and closes them, one after the other: the
// queue pairs of both sides, REQ, REP, RTU, DREQ.
func BenchmarkConnect(b *testing.B) {
	_, pd, cq, _ := benchClient(b)
	addr := startServer(b, "accept")
	for b.Loop() {
		q, err := pd.CreateQP(small(cq))
		must(b, err)
		c, err := cm.Dial(b.Context(), q, addr, cm.DialConfig{})
		must(b, err)
		must(b, c.Close())
		must(b, q.Close())
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "connections/s")
}

// BenchmarkFirstMessage is the time from Dial to the answer of a first message,
// in round trips of raw UDP.
func BenchmarkFirstMessage(b *testing.B) {
	_, pd, cq, mr := benchClient(b)
	addr := startServer(b, "echo")
	var took time.Duration
	for b.Loop() {
		q, err := pd.CreateQP(small(cq))
		must(b, err)
		must(b, q.Init())
		must(b, q.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{mr.Slice(0, 64)}}))
		start := time.Now()
		c, err := cm.Dial(b.Context(), q, addr, cm.DialConfig{})
		must(b, err)
		must(b, q.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("ping")}))
		for got := false; !got; { // what the last connection has left comes before
			var wc [1]verbs.WC
			_, err = cq.Wait(b.Context(), wc[:])
			must(b, err)
			got = wc[0].QPN == q.QPN() && wc[0].Opcode == verbs.WCRecv
		}
		took += time.Since(start)
		must(b, c.Close())
		must(b, q.Close())
	}
	b.ReportMetric(float64(took)/float64(b.N)/float64(rawRoundTrip(b)), "round-trips")
}

// rawRoundTrip measures a datagram there and back between two goroutines.
func rawRoundTrip(b *testing.B) time.Duration {
	b.Helper()
	server, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	must(b, err)
	defer server.Close()
	client, err := net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
	must(b, err)
	defer client.Close()
	go func() {
		var buf [256]byte
		for {
			n, from, err := server.ReadFromUDPAddrPort(buf[:])
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	const rounds = 2000
	var buf [256]byte
	start := time.Now()
	for range rounds {
		_, err = client.Write(buf[:])
		must(b, err)
		_, err = client.Read(buf[:])
		must(b, err)
	}
	return time.Since(start) / rounds
}

// BenchmarkDialUnderFlood is Dial while another address sends 50,000 forged
// REQs a second to the same listener.
func BenchmarkDialUnderFlood(b *testing.B) {
	_, pd, cq, _ := benchClient(b)
	addr := startServer(b, "accept")
	attacker := &host{t: b}
	attacker.dev, attacker.pd, attacker.cq, attacker.mr = benchClient(b)
	attacker.mr.Close()
	var err error
	attacker.mr, err = attacker.pd.RegisterMemory(make([]byte, 1<<16), verbs.LocalWrite)
	must(b, err)
	f := newFlooder(attacker, addr, 1)
	ctx, cancel := context.WithCancel(b.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			f.burst(50)
			<-tick.C
		}
	}()
	var longest time.Duration
	start := time.Now()
	for b.Loop() {
		q, err := pd.CreateQP(small(cq))
		must(b, err)
		begin := time.Now()
		c, err := cm.Dial(b.Context(), q, addr, cm.DialConfig{})
		must(b, err)
		longest = max(longest, time.Since(begin))
		must(b, c.Close())
		must(b, q.Close())
	}
	took := time.Since(start)
	cancel()
	<-stopped
	b.ReportMetric(float64(longest.Milliseconds()), "longest-ms")
	b.ReportMetric(float64(f.sent)/took.Seconds(), "forged/s")
}

// BenchmarkIdle opens 10,000 connections and says what they take in the
// processes of both sides together.
func BenchmarkIdle(b *testing.B) {
	const connections = 10000
	for b.Loop() {
		_, pd, cq, _ := benchClient(b)
		cmd, addr := startProcess(b, "accept")
		before := resident(b, os.Getpid()) + resident(b, cmd.Process.Pid)
		for range connections {
			q, err := pd.CreateQP(small(cq))
			must(b, err)
			_, err = cm.Dial(b.Context(), q, addr, cm.DialConfig{})
			must(b, err)
		}
		used := processorTime(b, cmd.Process.Pid) + processorTime(b, os.Getpid())
		const idle = 3 * time.Second
		<-time.After(idle) // a measurement, no test
		used = processorTime(b, cmd.Process.Pid) + processorTime(b, os.Getpid()) - used
		after := resident(b, os.Getpid()) + resident(b, cmd.Process.Pid)
		b.ReportMetric(float64(after)/1e6, "MB")
		b.ReportMetric(float64(after-before)/connections/2, "B/side")
		b.ReportMetric(100*used.Seconds()/idle.Seconds(), "%core")
	}
}
