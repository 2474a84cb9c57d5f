package main

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
)

type findings []struct{ Check, Subject, Status, Text, Advice, Command string }

func (l findings) find(check string) (status, text string) {
	for _, f := range l {
		if f.Check == check {
			return f.Status, f.Text
		}
	}
	return "", ""
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	taken := answering(t)
	r := invoke(t.Context(), "doctor", "-d", taken)
	if r.code != exitFailure || !strings.Contains(r.out, "[FAIL] port "+taken+":4791: taken: ") || !strings.Contains(r.out, "not checked\n") ||
		!strings.Contains(r.err, "there are problems") {
		t.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
	}
	r = invoke(t.Context(), "doctor", "--json", "-d", freeAddress())
	var list findings
	if err := json.Unmarshal([]byte(r.out), &list); err != nil {
		t.Fatalf("%v: %s%s", err, r.out, r.err)
	}
	if status, text := list.find("port"); status != "ok" || text != "free" {
		t.Errorf("port: %s, %s", status, text)
	}
}

func TestDoctorOfPeer(t *testing.T) {
	t.Parallel()
	peer := answering(t)
	r := invoke(t.Context(), "doctor", "--json", "-c", "5", "-W", "2", peer)
	var list findings
	if err := json.Unmarshal([]byte(r.out), &list); err != nil || r.code != exitOK {
		t.Fatalf("exit status %d, %v: %s%s", r.code, err, r.out, r.err)
	}
	for check, want := range map[string]string{"ping": "ok", "loss": "ok", "path mtu": "ok", "rate": "not checked"} {
		if runtime.GOOS != "linux" && check == "path mtu" {
			want = "not checked"
		}
		if status, text := list.find(check); status != want {
			t.Errorf("%s: %s, %s", check, status, text)
		}
	}
}

// TestDoctorMeasures has a server of write_bw on the peer.
func TestDoctorMeasures(t *testing.T) {
	t.Parallel()
	addr, port := freeAddress(), freePort(t)
	errs := &waiting{ready: make(chan struct{})}
	var out buffer
	done := make(chan int, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		done <- run(ctx, []string{"perf", "write_bw", "-D", "1", "-d", addr, "-p", port}, streams{in: strings.NewReader(""), out: &out, err: errs})
	}()
	<-errs.ready
	r := invoke(t.Context(), "doctor", "--rate", "-p", port, "-c", "1", "-W", "0.2", addr)
	if !strings.Contains(r.out, "Gb/s of RDMA WRITE") {
		t.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
		stop() // no client comes
	}
	if code := <-done; code != exitOK {
		t.Errorf("server: exit status %d: %s", code, errs.String())
	}
	r = invoke(t.Context(), "doctor", "--rate", "-p", port, "-c", "1", "-W", "0.2", answering(t))
	if !strings.Contains(r.out, "[ -- ] rate") || !strings.Contains(r.out, "no program listens there") {
		t.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
	}
}

func TestDoctorUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"doctor a b":    "one peer",
		"doctor -c 5":   "for a peer",
		"doctor --rate": "for a peer",
		"doctor -c 0 a": "between 1 and 1000",
		"doctor -p 0 a": "1 to 65535",
		"doctor -W 0 a": "positive number",
	} {
		if r := invoke(t.Context(), strings.Fields(args)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("rocev2 %s: exit status %d, %q; expected status 2 and %q", args, r.code, r.err, want)
		}
	}
}
