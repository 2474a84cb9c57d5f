package metrics_test

import (
	"fmt"
	"io"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/observe/metrics"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

func scrape(t testing.TB, c metrics.Config) string {
	t.Helper()
	w := httptest.NewRecorder()
	metrics.Handler(c).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	b, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("status %d: %v\n%s", w.Code, err, b)
	}
	return string(b)
}

// value returns the value of a series.
func value(t testing.TB, text, series string) string {
	t.Helper()
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	t.Errorf("there is no %s", series)
	return ""
}

func addQPs(t testing.TB, dev *verbs.Device, n int) []*verbs.QP {
	t.Helper()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := dev.CreateCQ(16)
	if err != nil {
		t.Fatal(err)
	}
	var list []*verbs.QP
	for range n {
		q, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 8})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, q)
	}
	return list
}

// What queue pairs have done shows under the names of the field and under those
// of the verbs, once for each device.
func TestMetrics(t *testing.T) {
	t.Parallel()
	da, db := verbstest.Devices(t)
	a, b := addQPs(t, da, 1)[0], addQPs(t, db, 3)[0]
	verbstest.Connect(t, a, b)
	wr := verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Signaled: true, Inline: []byte{1}, Remote: verbs.RemoteMemory{}.At(0)}
	if err := a.PostSend(wr); err != nil { // there is no such key: NAK
		t.Fatal(err)
	}
	var wc [1]verbs.WC
	if _, err := a.Config().SendCQ.Wait(t.Context(), wc[:]); err != nil {
		t.Fatal(err)
	}
	text := scrape(t, metrics.Config{
		Devices: func() []*verbs.Device { return []*verbs.Device{da, db} }, Version: "v1",
		Gauges: func() []metrics.Gauge {
			return []metrics.Gauge{{Name: "clients", Help: "that are served", Label: "target", LabelValue: "rping", Value: 3, Total: true}, {Name: "regions", Help: "x", Value: 2}}
		},
	})
	la, lb := fmt.Sprintf(`{device="%v"}`, da.Addr()), fmt.Sprintf(`{device="%v"}`, db.Addr())
	for series, want := range map[string]string{
		"rocev2_req_remote_access_errors_total" + la:                            "1",
		"rocev2_resp_remote_access_errors_total" + lb:                           "1",
		"rocev2_qp_nak_access_sent_total" + lb:                                  "1",
		"rocev2_sent_pkts_total" + la:                                           "1",
		"rocev2_link_rx_packets_total" + lb:                                     "1",
		fmt.Sprintf(`rocev2_queue_pairs{device="%v",state="RESET"}`, db.Addr()): "2",
		fmt.Sprintf(`rocev2_queue_pairs{device="%v",state="ERR"}`, da.Addr()):   "1",
		"rocev2_port_up" + la:                                                   "1",
		`rocev2_build_info{version="v1"}`:                                       "1",
		`rocev2_clients_total{target="rping"}`:                                  "3",
		"rocev2_regions":                                                        "2",
		"process_open_fds":                                                      "",
	} {
		if got := value(t, text, series); got != want && want != "" {
			t.Errorf("%s is %s, want %s", series, got, want)
		}
	}
	for _, k := range metrics.Known {
		value(t, text, "rocev2_"+k.Name+"_total"+la)
		if k.Help == "" || k.From == "" {
			t.Errorf("%s has no words", k.Name)
		}
	}
}

// The number of series does not depend on that of queue pairs, and none names
// one.
func TestNoSeriesForAQueuePair(t *testing.T) {
	t.Parallel()
	da, _ := verbstest.Devices(t)
	c := metrics.Config{Devices: func() []*verbs.Device { return []*verbs.Device{da} }}
	few := strings.Count(scrape(t, c), "\n")
	list := addQPs(t, da, 1000)
	text := scrape(t, c)
	if many := strings.Count(text, "\n"); many != few {
		t.Errorf("%d lines with 1000 queue pairs, %d with none", many, few)
	}
	for _, q := range list[:10] {
		if regexp.MustCompile(fmt.Sprintf(`"(0x)?0*(%x|%d)"`, uint32(q.QPN()), uint32(q.QPN()))).MatchString(text) {
			t.Errorf("the metrics name queue pair %v", q.QPN())
		}
	}
}

// BenchmarkScrape is /metrics with 10,000 queue pairs.
func BenchmarkScrape(b *testing.B) {
	da, _ := verbstest.Devices(b)
	addQPs(b, da, 10000)
	c := metrics.Config{Devices: func() []*verbs.Device { return []*verbs.Device{da} }}
	h := metrics.Handler(c)
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil))
	}
}
