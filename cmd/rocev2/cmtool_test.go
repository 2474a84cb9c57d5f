package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// listening is a standard error that tells when a server of the connection
// manager waits for its client.
type listening struct {
	waiting
}

func (l *listening) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("waiting on port")) {
		l.once.Do(func() { close(l.ready) })
	}
	return l.buffer.Write(p)
}

// cmServer is a server that waits.
type cmServer struct {
	addr   string
	out    buffer
	errs   *listening
	done   chan int
	cancel context.CancelFunc
}

// cmServe starts a server. @ in args stands for its address.
func cmServe(t *testing.T, args string) *cmServer {
	t.Helper()
	s := &cmServer{addr: freeAddress(), errs: &listening{waiting{ready: make(chan struct{})}}, done: make(chan int, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	args = strings.ReplaceAll(args, "@", s.addr) + " --timeout 60s"
	go func() {
		s.done <- run(ctx, strings.Fields(args), streams{in: strings.NewReader(""), out: &s.out, err: s.errs})
	}()
	select {
	case <-s.errs.ready:
	case code := <-s.done:
		t.Fatalf("the server ends with %d: %s", code, s.errs.String())
	}
	return s
}

// client runs a client. @ stands for the server's address.
func (s *cmServer) client(t *testing.T, args string) result {
	t.Helper()
	return invoke(t.Context(), append(strings.Fields(strings.ReplaceAll(args, "@", s.addr)), "--ib-dev", freeAddress(), "--timeout", "60s")...)
}

func (s *cmServer) result() result { return result{<-s.done, s.out.String(), s.errs.String()} }

// TestCMTools runs each tool as server and as client.
func TestCMTools(t *testing.T) {
	t.Parallel()
	const ping = "ping data: rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr\n"
	for name, tt := range map[string]struct{ server, client, wantServer, wantClient string }{
		"rping":             {"rping -s -a @ -v", "rping -c -a @ -C 1 -v -V -q -d", "server " + ping, ping},
		"rping, large":      {"rping -s -a @ -p 99", "rping -c -a @ -C 5 -S 64K -V -p 99", "", ""},
		"rping with faults": {"rping -s -a @ --fault drop=2%", "rping -c -a @ -C 100 -S 5000 -V --fault drop=2%", "", ""},
		"ucmatose": {"ucmatose -b @ -m", "ucmatose -s @ -t 32 -a 16",
			"cmatose: starting server\ninitiating data transfers\ncompleting sends\nreceiving data transfers\ndata transfers complete\ncmatose: disconnecting\ndisconnected\ntest complete\nreturn status 0\n",
			"cmatose: starting client\ncmatose: connecting\nreceiving data transfers\nsending replies\ndata transfers complete\ntest complete\nreturn status 0\n"},
		"cmatose":              {"cmatose -b @ -P ib -c 20 -C 30 -S 1K -p 77", "cmatose -s @ -P ib -c 20 -C 30 -S 1K -p 77 -f ip", "return status 0\n", "return status 0\n"},
		"ucmatose with faults": {"ucmatose -b @ -c 5 --fault drop=2%", "ucmatose -s @ -c 5 --fault drop=2%", "return status 0\n", "return status 0\n"},
		"udaddy": {"udaddy -b @", "udaddy -s @ -t 32",
			"udaddy: starting server\nreceiving data transfers\nsending replies\ndata transfers complete\ntest complete\nreturn status 0\n",
			"udaddy: starting client\nudaddy: connecting\ninitiating data transfers\nreceiving data transfers\ndata transfers complete\ntest complete\nreturn status 0\n"},
		"udaddy, many":     {"udaddy -b @ -c 20 -C 30 -S 1K", "udaddy -s @ -c 20 -C 30 -S 1K", "return status 0\n", "return status 0\n"},
		"rdma_client":      {"rdma_server -s @", "rdma_client -s @", "rdma_server: start\nrdma_server: end 0\n", "rdma_client: start\nrdma_client: end 0\n"},
		"rdma_xclient":     {"rdma_xserver -d @ -p 88", "rdma_xclient -s @ -p 88", "rdma_xserver: start\nrdma_xserver: end 0\n", "rdma_xclient: start\nrdma_xclient: end 0\n"},
		"perf -z":          {"perf write_bw -d @ -z -n 50", "perf write_bw -z -n 50 @", "", ""},
		"perf -R":          {"perf read_bw -d @ -R -n 50 -q 3", "perf read_bw -R -n 50 -q 3 -T 32 --retry_count 5 @", "", ""},
		"perf -R, latency": {"perf write_lat -d @ -R -n 50 -p 7777", "perf write_lat -R -n 50 -p 7777 @", "", ""},
		"cmtime":           {"cmtime -b @ -c 50", "cmtime -s @ -c 50 -r 3 -t 1000", "", ""},
		"XRC":              {"rdma_xserver -d @ -c x", "rdma_xclient -s @ -c X", "rdma_xserver: end 0\n", "rdma_xclient: end 0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := cmServe(t, tt.server)
			c := s.client(t, tt.client)
			r := s.result()
			if c.code != 0 || r.code != 0 {
				t.Fatalf("server %d: %s; client %d: %s", r.code, r.err, c.code, c.err)
			}
			if !strings.HasSuffix(r.out, tt.wantServer) || !strings.HasSuffix(c.out, tt.wantClient) {
				t.Errorf("the server prints\n%s\nthe client\n%s", r.out, c.out)
			}
		})
	}
}

// TestCMToolsJSON checks that a line of JSON is all that is printed.
func TestCMToolsJSON(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		server, client string
		want           map[string]float64
	}{
		"rping":       {"rping -s -a @ --json -v", "rping -c -a @ -C 3 --json -v", map[string]float64{"pings": 3, "bytes": 384}},
		"ucmatose":    {"ucmatose -b @ --json", "ucmatose -s @ --json", map[string]float64{"sent": 10, "received": 10, "bytes": 2000, "connections": 1}},
		"udaddy":      {"udaddy -b @ --json", "udaddy -s @ --json", map[string]float64{"sent": 10, "received": 10, "bytes": 2000, "connections": 1}},
		"rdma_client": {"rdma_server -s @ --json", "rdma_client -s @ --json", map[string]float64{"sent": 1, "received": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := cmServe(t, tt.server)
			c := s.client(t, tt.client)
			for role, r := range map[string]result{"client": c, "server": s.result()} {
				var v map[string]any
				if err := json.Unmarshal([]byte(r.out), &v); err != nil || r.code != 0 {
					t.Errorf("the %s ends with %d: %v: %s%s", role, r.code, err, r.out, r.err)
				}
				for key, want := range tt.want {
					if v[key] != want {
						t.Errorf("%q of the %s is %v, expected %v: %s", key, role, v[key], want, r.out)
					}
				}
				if tool, _ := v["tool"].(string); v["role"] != role || tool == "" || v["seconds"] == 0 {
					t.Errorf("the %s prints %s", role, r.out)
				}
			}
		})
	}
}

// TestPerfSaysWhatConnects checks the lines of the table about the connection
// manager.
func TestPerfSaysWhatConnects(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"-z": "rdma_cm QPs\t : OFF\n Data ex. method : rdma_cm\n", "-R": "rdma_cm QPs\t : ON\n Data ex. method : rdma_cm\n",
	} {
		s := cmServe(t, "perf send_bw -d @ -n 20 "+flag)
		if c := s.client(t, "perf send_bw -n 20 "+flag+" @"); c.code != 0 || !strings.Contains(c.out, want) {
			t.Errorf("%s: the client ends with %d and prints\n%s%s", flag, c.code, c.out, c.err)
		}
		if r := s.result(); r.code != 0 {
			t.Error(r.err)
		}
	}
}

// TestCmtimeTable checks the table and the JSON of cmtime.
func TestCmtimeTable(t *testing.T) {
	t.Parallel()
	s := cmServe(t, "cmtime -b @")
	c := s.client(t, "cmtime -s @ -c 3")
	if c.code != 0 || !strings.HasPrefix(c.out, "creating id\nresolving address\nresolving route\ncreating qp\nconnecting\ndisconnecting\ndestroying id\n"+
		"step              total ms     max ms     min us  us / conn\ncreate id    :        ") || strings.Count(c.out, "\n") != 15 {
		t.Errorf("the client ends with %d and prints\n%s%s", c.code, c.out, c.err)
	}
	c = s.client(t, "cmtime -s @ -c 3 --json")
	var v struct {
		Connections int
		Connect     map[string]float64
	}
	if err := json.Unmarshal([]byte(c.out), &v); err != nil || v.Connections != 3 || v.Connect["us_min"] <= 0 || v.Connect["us_per_connection"] <= 0 {
		t.Errorf("%v: %s%s", err, c.out, c.err)
	}
	s.cancel() // it has no end of its own
	if r := s.result(); r.code != exitFailure || !strings.HasSuffix(r.err, "rocev2: interrupted\n") {
		t.Errorf("the server ends with %d: %s", r.code, r.err)
	}
}

// TestPersistentServer serves clients until it is interrupted, one with an
// error among them.
func TestPersistentServer(t *testing.T) {
	t.Parallel()
	s := cmServe(t, "rping -s -P -a @ -S 100")
	for range 3 {
		if c := s.client(t, "rping -c -a @ -C 2"); c.code != 0 {
			t.Error(c.err)
		}
	}
	if c := s.client(t, "rping -c -a @ -C 2 -S 200"); c.code != exitFailure || !strings.Contains(c.err, "the peer disconnected") {
		t.Errorf("a client that wants too much ends with %d: %s", c.code, c.err)
	}
	if c := s.client(t, "rping -c -a @ -C 2"); c.code != 0 {
		t.Error(c.err)
	}
	s.cancel()
	if r := s.result(); r.code != exitFailure || !strings.HasSuffix(r.err, "rocev2: interrupted\n") || !strings.Contains(r.err, "offers 200 bytes: pings have between 1 and 100 here") {
		t.Errorf("the server ends with %d: %s", r.code, r.err)
	}
}

// TestCMClientWithoutServer dials an address without a device, and a device
// without a server.
func TestCMClientWithoutServer(t *testing.T) {
	t.Parallel()
	s := cmServe(t, "rdma_server -s @")
	if c := s.client(t, "ucmatose -s @ -p 99"); c.code != exitFailure || !strings.Contains(c.err, "no program listens there: start the server side first") || !strings.HasSuffix(c.out, "return status -1\n") {
		t.Errorf("the client ends with %d: %s%s", c.code, c.out, c.err)
	}
	if c := s.client(t, "udaddy -s @"); c.code != exitFailure || !strings.Contains(c.err, "no program listens there") {
		t.Errorf("the client ends with %d: %s", c.code, c.err)
	}
	s.cancel()
	if r := s.result(); r.code != exitFailure || !strings.HasSuffix(r.err, "rocev2: interrupted\n") || !strings.HasSuffix(r.out, "rdma_server: end -1\n") {
		t.Errorf("the server ends with %d: %s%s", r.code, r.out, r.err)
	}
	if r := invoke(t.Context(), "rping", "-c", "-C", "1", "-a", freeAddress(), "--timeout", "100ms", "--ib-dev", freeAddress()); r.code != exitFailure || !strings.Contains(r.err, "nothing listens on UDP port 4791") {
		t.Errorf("a client of nobody ends with %d: %s", r.code, r.err)
	}
}

func TestCMToolsUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"rping":                                    "-s or -c",
		"rping -s -c":                              "-s or -c",
		"rping -c":                                 "-a is missing",
		"rping -c -a 127.0.0.1 -P":                 "only a server",
		"rping -s -I 127.0.0.1":                    "bound by -a",
		"rping -s -S 5 -a 127.94.4.1":              "invalid size 5 (valid range is 27 to 65536)",
		"rping -c -a 127.0.0.1 -C 0":               "-C 0: it must be at least 1",
		"rping -s -p 0":                            "1 to 65535",
		"rping -s -a 127.0.0.1 --ib-dev 127.0.0.2": "-a 127.0.0.1 and --ib-dev 127.0.0.2",
		"rping x":                                  "no arguments",
		"ucmatose -f gid":                          "-f gid: there are no IB addresses",
		"ucmatose -f ip4":                          "name, ip and ipv6",
		"ucmatose -f ipv6 -s 127.0.0.1":            "another form",
		"ucmatose -P udp":                          "tcp and ib",
		"ucmatose -C 0":                            "-C 0: it must be at least 1",
		"ucmatose -a 32 -b 127.94.4.2":             "ACK timeout",
		"ucmatose -t 256":                          "0 to 255",
		"ucmatose -S 2000M -b 127.94.4.3":          "message size",
		"ucmatose -c 20000 -b 127.94.4.4":          "between 1 and 10000",
		"ucmatose x":                               "no arguments",
		"udaddy -P ipoib":                          "no IPoIB",
		"udaddy -P tcp":                            "is udp",
		"udaddy -p 2":                              "no IPoIB",
		"udaddy -S 5000 -b 127.94.4.5":             "larger than active mtu",
		"cmtime -c 0":                              "-c 0: it must be at least 1",
		"cmtime -r -1":                             "at least 0",
		"cmtime -r 8 -b 127.94.4.6":                "number of retries",
		"cmtime -t 0":                              "at least 1",
		"rdma_client -s 127.0.0.1 -p 70000":        "1 to 65535",
		"rdma_xclient -c q":                        "r (RC) and x (XRC)",
		"rdma_server x":                            "no arguments",
		"rdma_server --idle-timeout 0s":            "positive",
		"rdma_server -s 127.0.0.1 -d 127.0.0.2":    "both name the device",
	} {
		if r := invoke(t.Context(), strings.Fields(args)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("rocev2 %s: exit status %d, %q; expected status 2 and %q", args, r.code, r.err, want)
		}
	}
}
