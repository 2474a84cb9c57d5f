package main

import (
	"context"
	"encoding/json"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// answering opens a device whose queue pair 1 answers SIDR_REQs as a connection
// manager does.
func answering(t *testing.T) string {
	t.Helper()
	addr := freeAddress()
	dev, err := verbs.OpenAddr(netip.MustParseAddr(addr), verbs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pd, err := dev.AllocPD()
	must(err)
	cq, err := dev.CreateCQ(16)
	must(err)
	qp, err := pd.CreateQP(verbs.QPConfig{Type: verbs.GSI, SendCQ: cq, RecvCQ: cq, MaxInline: mad.Len})
	must(err)
	// Requests do not wait for the answers to those before.
	const slots, slot = 8, verbs.GRHLen + mad.Len
	mr, err := pd.AllocMemory(slots*slot, verbs.LocalWrite)
	must(err)
	post := func(i uint64) error {
		return qp.PostRecv(verbs.RecvWR{ID: i, SGList: []verbs.SGE{mr.Slice(int(i)*slot, slot)}})
	}
	must(qp.Init())
	for i := range uint64(slots) {
		must(post(i))
	}
	must(qp.Activate(0))
	go func() {
		var wc [1]verbs.WC
		for {
			if _, err := cq.Wait(context.Background(), wc[:]); err != nil {
				return // the device is closed
			}
			if wc[0].Opcode != verbs.WCRecv {
				continue
			}
			var req mad.SIDRREQ
			b := mr.Bytes()[wc[0].ID*slot:][:slot]
			ah, err := pd.AHFromWC(wc[0], b)
			if err == nil && req.Parse(b[verbs.GRHLen:]) == nil {
				rep := mad.SIDRREP{RequestID: req.RequestID, Status: 1, ServiceID: req.ServiceID}
				qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: rep.AppendTo(nil), AH: ah, RemoteQPN: 1})
			}
			if err == nil {
				ah.Close()
			}
			if post(wc[0].ID) != nil {
				return // the device is closed
			}
		}
	}()
	return addr
}

func TestPing(t *testing.T) {
	t.Parallel()
	peer := answering(t)
	r := invoke(t.Context(), "ping", "-c", "3", "-i", "0.01", "-W", "30", "-d", freeAddress(), peer)
	if r.code != exitOK || strings.Count(r.out, "256 bytes from "+peer+": seq=") != 3 || !strings.Contains(r.out, "3 requests, 3 answers, 0% loss") ||
		!strings.Contains(r.out, "rtt min/avg/max/mdev = ") {
		t.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
	}
	r = invoke(t.Context(), "ping", "-c", "2", "-i", "0.01", "-W", "30", "--json", peer) // from a loopback address that is free
	var s struct {
		Peer           string
		Sent, Received int
		Loss           float64
		Avg            int `json:"avg_ns"`
	}
	if err := json.Unmarshal([]byte(r.out), &s); err != nil || r.code != exitOK || s.Peer != peer || s.Sent != 2 || s.Received != 2 || s.Avg <= 0 {
		t.Errorf("exit status %d, %+v, %v: %s%s", r.code, s, err, r.out, r.err)
	}
}

func TestPingExplainsSilence(t *testing.T) {
	t.Parallel()
	// A device without a connection manager.
	dev, err := verbs.OpenAddr(netip.MustParseAddr(freeAddress()), verbs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	silent, nobody := "silent at UDP port 4791", "no process has its UDP port 4791"
	if runtime.GOOS != "linux" {
		silent = "cannot be found out here"
	}
	for peer, want := range map[string]string{dev.Addr().String(): silent, freeAddress(): nobody} {
		r := invoke(t.Context(), "ping", "-c", "1", "-W", "0.05", peer)
		if r.code != exitFailure || !strings.Contains(r.err, want) {
			t.Errorf("%s: exit status %d, %q; want %q", peer, r.code, r.err, want)
		}
	}
	r := invoke(t.Context(), "ping", "nobody.invalid")
	if r.code != exitFailure || !strings.Contains(r.err, `"nobody.invalid"`) {
		t.Errorf("exit status %d, %q", r.code, r.err)
	}
}

func TestTrace(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows programs what routers say: run it there")
	}
	peer := answering(t)
	r := invoke(t.Context(), "trace", "-W", "1", "--queries", "2", peer)
	if r.code != exitOK || !strings.Contains(r.out, " 1  "+peer) || !strings.Contains(r.out, "answers RoCEv2 pings") || !strings.Contains(r.out, peer+" is one hop away") {
		t.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
	}
	// A device that is in use cannot ping.
	r = invoke(t.Context(), "trace", "-W", "0.05", "--json", "-d", peer, freeAddress())
	var way struct {
		Hops []struct {
			Address string
			Peer    bool
			Note    string
		}
		Reached bool
		PathMTU int `json:"path_mtu"`
	}
	if err := json.Unmarshal([]byte(r.out), &way); err != nil || r.code != exitOK || !strings.Contains(r.err, "without RoCEv2 ping") ||
		!way.Reached || len(way.Hops) != 1 || !strings.Contains(way.Hops[0].Note, "no process has UDP port 4791") || way.PathMTU != 4096 {
		t.Errorf("exit status %d, %+v, %v: %s%s", r.code, way, err, r.out, r.err)
	}
}

func TestDevicesAndLinks(t *testing.T) {
	t.Parallel()
	r := invoke(t.Context(), "devices")
	if r.code != exitOK || !strings.Contains(r.out, "node GUID") || !strings.Contains(r.out, "    127.0.0.1       \t7a9d65ae49b98967\n") {
		t.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
	}
	dev, err := verbs.OpenAddr(netip.MustParseAddr(freeAddress()), verbs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	addr := dev.Addr().String()
	r = invoke(t.Context(), "status", addr)
	if r.code != exitOK || !strings.Contains(r.out, "RoCE device '"+addr+"'") || !strings.Contains(r.out, "4: ACTIVE") || !strings.Contains(r.out, "4791 taken: ") {
		t.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
	}
	r = invoke(t.Context(), "links")
	if r.code != exitOK || !strings.HasPrefix(r.out, "INTERFACE") || !strings.Contains(r.out, "127.0.0.1 ") {
		t.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
	}
	for _, command := range []string{"links", "status"} {
		r = invoke(t.Context(), command, "--json", addr)
		var list []struct {
			Address string
			GID     string `json:"gid"`
			PathMTU int    `json:"path_mtu"`
			Free    bool   `json:"port_free"`
			Holder  string `json:"port_holder"`
		}
		if err := json.Unmarshal([]byte(r.out), &list); err != nil || len(list) != 1 || list[0].Address != addr || list[0].Free ||
			list[0].Holder == "" || list[0].PathMTU != 4096 || !strings.HasPrefix(list[0].GID, "0000:0000:0000:0000:0000:ffff:7f") {
			t.Errorf("%s: %+v, %v: %s%s", command, list, err, r.out, r.err)
		}
	}
	if r := invoke(t.Context(), "links", "203.0.113.77"); r.code != exitFailure || !strings.Contains(r.err, "no interface of this host") {
		t.Errorf("exit status %d: %s", r.code, r.err)
	}
}

func TestPathUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"devices x":            "no arguments",
		"status a b":           "one device",
		"links a b":            "one device",
		"ping":                 "one peer",
		"ping a b":             "one peer",
		"ping -c -1 a":         "0 or more",
		"ping -i 0 a":          "positive number of seconds",
		"ping -W NaN a":        "positive number of seconds",
		"ping -s 5 a":          "256 bytes",
		"trace":                "one peer",
		"trace -m 0 a":         "between 1 and 255",
		"trace --queries 11 a": "between 1 and 10",
		"trace -W -1 a":        "positive number of seconds",
	} {
		if r := invoke(t.Context(), strings.Fields(args)...); r.code != exitUsage || !strings.Contains(r.err, want) || r.out != "" {
			t.Errorf("rocev2 %s: exit status %d, %q; expected status 2 and %q", args, r.code, r.err, want)
		}
	}
}
