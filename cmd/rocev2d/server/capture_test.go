package server_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/internal/captures"
	"github.com/gosoftroce/rocev2/verbs"
)

// A recording is started, stopped and fetched over HTTP, within its bounds.
func TestCapture(t *testing.T) {
	t.Parallel()
	f := newFake("rping")
	d := start(t, func(c *config.Config) { c.Capture.Bytes = 128 << 10 }, f.target())
	dev := (<-f.hosts).Device
	for _, path := range []string{"stop", "download"} {
		method := map[string]string{"stop": "POST", "download": "GET"}[path]
		if status, _, body := d.ask(method, "/api/v1/capture/"+path, ""); status/100 != 4 {
			t.Errorf("%s of nothing: %d %s", path, status, body)
		}
	}
	for body, want := range map[string]string{
		`{"filter":"nonsense"}`: "no condition", `{"bytes":1000000}`: "at most 131072", `{"device":"192.0.2.1"}`: "no device", `{"what":1}`: "unknown field", `{`: "not what is expected",
	} {
		if status, _, got := d.ask("POST", "/api/v1/capture/start", body); status != 400 || !strings.Contains(got, want) {
			t.Errorf("%s: %d %s", body, status, got)
		}
	}
	if status, _, body := d.ask("POST", "/api/v1/capture/start", `{"filter":"op=send dir=out"}`); status != 200 || !strings.Contains(body, `"running":true`) {
		t.Fatalf("%d %s", status, body)
	}
	if status, _, _ := d.ask("POST", "/api/v1/capture/start", `{}`); status != 400 {
		t.Errorf("a second recording: %d", status)
	}
	q := equip(t, dev, 2)
	must(t, q[0].Connect(t.Context(), q[1].Endpoint()))
	must(t, q[1].Connect(t.Context(), q[0].Endpoint()))
	for i := range 5 {
		must(t, q[1].PostRecv(verbs.RecvWR{ID: 9}))
		must(t, q[0].PostSend(verbs.SendWR{ID: uint64(i), Opcode: verbs.OpSend, Signaled: true}))
	}
	wc := make([]verbs.WC, 16)
	for n := 0; n < 10; {
		k, err := q[0].Config().SendCQ.Wait(t.Context(), wc)
		must(t, err)
		n += k
	}
	if status, _, _ := d.ask("POST", "/api/v1/capture/stop", ""); status != 200 {
		t.Errorf("stop: %d", status)
	}
	sent := 5 + int(q[0].Stats().Retransmits) // a peer may be late
	v := d.get("capture")
	if v["running"] != false || v["matched"] != float64(sent) || v["kept"] != float64(sent) || v["seen"].(float64) < 10 {
		t.Errorf("%d SENDs: %v", sent, v)
	}
	status, h, body := d.ask("GET", "/api/v1/capture/download", "")
	if status != 200 || h.Get("Content-Type") != "application/x-pcapng" {
		t.Fatalf("%d %v", status, h)
	}
	if frames, _ := captures.Frames(t, bytes.NewReader([]byte(body))); len(frames) != sent {
		t.Errorf("%d frames of %d", len(frames), sent)
	}
	if status, _, _ := d.ask("POST", "/api/v1/capture/start", `{"device":"`+d.addr.String()+`"}`); status != 200 {
		t.Errorf("again: %d", status)
	}
}
