package target_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/observe/conformance/target"
	"github.com/gosoftroce/rocev2/verbs"
)

func device(t testing.TB) *verbs.Device {
	t.Helper()
	link, other := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	dev, err := verbs.OpenLink(link, verbs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dev.Close()
		other.Close()
	})
	return dev
}

const pair = "qp type=rc addr=%s qpn=5 mtu=256 access=lrwa timeout=14 retry=7 rnrretry=7 rd=4 destrd=4 receives=2 size=64"

// serve serves clients until the test ends, and returns where.
func serve(t *testing.T, c target.Config) string {
	t.Helper()
	dev := device(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = target.Serve(ctx, dev, ln, c) // it ends with ctx
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return ln.Addr().String()
}

// exchange sends commands over TCP and returns the answers.
func exchange(t *testing.T, c target.Config, commands ...string) (answers []string) {
	t.Helper()
	conn, err := net.Dial("tcp", serve(t, c))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewScanner(conn)
	for _, command := range commands {
		if _, err := fmt.Fprintln(conn, command); err != nil {
			t.Fatal(err)
		}
		if !in.Scan() {
			t.Fatalf("no answer to %q: %v", command, in.Err())
		}
		answers = append(answers, in.Text())
	}
	return answers
}

// TestTrafficForOthers: a client cannot aim this side's packets at a host that
// it does not connect from.
func TestTrafficForOthers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		addr string
		any  bool
		want string
	}{
		{"127.0.0.9", false, "ok qpn="},
		{"192.0.2.2", false, "error you connect from 127.0.0.1"},
		{"192.0.2.2", true, "ok qpn="},
	} {
		got := exchange(t, target.Config{AnyPeer: c.any}, fmt.Sprintf(pair, c.addr))
		if !strings.HasPrefix(got[0], c.want) {
			t.Errorf("%+v: %s", c, got[0])
		}
	}
}

// TestBadCommands: each is answered in a line, and the next is served.
func TestBadCommands(t *testing.T) {
	t.Parallel()
	commands := []string{
		"", "nothing", "mem off=0 len=8", "qp", "qp type=rc", fmt.Sprintf(pair, "127.0.0.1") + " access=z",
		fmt.Sprintf(pair, "127.0.0.1") + " mtu=77", fmt.Sprintf(pair, "127.0.0.1") + " receives=60 size=32768", fmt.Sprintf(pair, "x"),
		fmt.Sprintf(pair, "127.0.0.1"), "mem off=65535 len=2", "mem off=0 len=65536", "mem off=-1 len=1", "fill off=65536 hex=00", "fill off=0 hex=0",
		"post op=dance", "post op=write off=65530 len=100", "recv id=1 off=1 len=65536", "wc ms=99999999", "wc ms=x", "state",
	}
	good := map[int]bool{9: true, 20: true}
	for i, got := range exchange(t, target.Config{}, commands...) {
		if strings.HasPrefix(got, "ok") != good[i] || !good[i] && !strings.HasPrefix(got, "error ") {
			t.Errorf("%q: %s", commands[i], got)
		}
	}
}

// TestClientsAreBounded: those that are too many are refused in words.
func TestClientsAreBounded(t *testing.T) {
	t.Parallel()
	addr := serve(t, target.Config{})
	refused := false
	for range 40 {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintln(conn, "hello")
		line, err := bufio.NewReader(conn).ReadString('\n')
		refused = refused || err != nil || strings.HasPrefix(line, "error too many")
	}
	if !refused {
		t.Error("40 clients are served at a time")
	}
}

// FuzzCommands: no line makes the target panic, and each has an answer.
func FuzzCommands(f *testing.F) {
	f.Add("hello\n" + fmt.Sprintf(pair, "192.0.2.2") + "\npost id=1 op=write off=0 len=8 va=1 rkey=1\nwc ms=0\nstate\n")
	f.Add("qp type=ud addr=192.0.2.2 qpn=1 mtu=256 access=l qkey=5\nrecv id=1 off=0 len=70\nmem off=0 len=9\nfill off=3 hex=0102\n")
	dev := device(f)
	f.Fuzz(func(t *testing.T, text string) {
		a, b := net.Pipe()
		go target.ServeConn(t.Context(), dev, b, target.Config{})
		in := bufio.NewScanner(a)
		in.Buffer(nil, 1<<16)
		for line := range strings.Lines(text) {
			if len(line) > 1000 || strings.Contains(line, "ms=") || !strings.HasSuffix(line, "\n") {
				continue // it may wait
			}
			if _, err := a.Write([]byte(line)); err != nil {
				t.Fatal(err)
			}
			if !in.Scan() || !strings.HasPrefix(in.Text(), "ok") && !strings.HasPrefix(in.Text(), "error") {
				t.Fatalf("%q is answered by %q, %v", line, in.Text(), in.Err())
			}
		}
		a.Close()
	})
}
