package worldtest_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/fabric/worldtest"
	"github.com/gosoftroce/rocev2/rdma/rdmanet"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// leafSpine returns a Clos network of two stages with cables of 100 Gb/s.
func leafSpine(t testing.TB, leaves, spines, perLeaf int, change ...func(*topology.Plan)) network.Config {
	t.Helper()
	cable := topology.Cable{Rate: 100 * topology.Gbps, Delay: topology.Microsecond}
	g, err := topology.LeafSpine{Leaves: leaves, Spines: spines, HostsPerLeaf: perLeaf, Host: cable}.Graph()
	must(t, err)
	plan := topology.Plan{Profile: topology.Spectrum(), Converge: 1_000_000_000, Seed: 1}
	for _, f := range change {
		f(&plan)
	}
	c, err := g.Network(plan)
	must(t, err)
	return c
}

// text is n bytes that say of each word where it stands, and of which stream it
// is.
func text(stream, n int) []byte {
	b := make([]byte, 0, n+8)
	for i := 0; len(b) < n; i++ {
		b = binary.BigEndian.AppendUint64(b, uint64(stream)<<32|uint64(i))
	}
	return b[:n]
}

// TestHTTP has 64 hosts, each with a server of net/http and a client of four
// others, over RDMA.
func TestHTTP(t *testing.T) {
	t.Parallel()
	sum, took := serveHTTP(t, func(i, k int) int { return (i + 1 + 13*k) % webHosts })
	if t.Logf("%v of virtual time, %+v", took, sum); sum.Dropped() > 0 {
		t.Errorf("%d packets were dropped", sum.Dropped())
	}
}

// TestHTTPIncast is the same where all ask four hosts at once, and switches
// have short queues: packets are lost, and no byte.
func TestHTTPIncast(t *testing.T) {
	t.Parallel()
	short := func(p *topology.Plan) {
		p.Tune = func(_ int32, s *network.Switch) {
			s.Classes[0].EgressMax, s.Ports = 128<<10, nil
		}
	}
	sum, took := serveHTTP(t, func(_, k int) int { return k }, short)
	if t.Logf("%v of virtual time, %+v", took, sum); sum.Dropped() == 0 {
		t.Error("no packet was dropped")
	}
}

const webHosts = 64

// serveHTTP has host i ask the hosts that asks returns for k from 0 to 3.
func serveHTTP(t *testing.T, asks func(i, k int) int, change ...func(*topology.Plan)) (sum network.Totals, took time.Duration) {
	const asked, size = 4, 64 << 10
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.New(t, worldtest.Config{Network: leafSpine(t, 8, 4, 8, change...)})
		var served, done sync.WaitGroup
		var servers []*http.Server
		for i := range webHosts {
			lc := rdmanet.ListenConfig{Device: w.Device(i)}
			l, err := lc.Listen(t.Context(), "rdma", ":80")
			must(t, err)
			s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					http.Error(rw, err.Error(), http.StatusBadRequest)
					return
				}
				rw.Write(append(body, text(i, size)...))
			})}
			served.Go(func() {
				if err := s.Serve(l); err != http.ErrServerClosed {
					t.Errorf("Serve of host %d: %v", i, err)
				}
			})
			servers = append(servers, s)
		}
		for i := range webHosts {
			d := &rdmanet.Dialer{Device: w.Device(i)}
			done.Go(func() {
				tr := &http.Transport{DialContext: d.DialContext}
				defer tr.CloseIdleConnections()
				client := &http.Client{Transport: tr, Timeout: time.Minute}
				for k := range asked {
					must1(t, ask(client, i, asks(i, k), size))
				}
			})
		}
		done.Wait()
		sum, took = w.Totals(), w.Now()
		for _, s := range servers {
			must1(t, s.Shutdown(t.Context()))
		}
		served.Wait()
	})
	return sum, took
}

func must1(t *testing.T, err error) {
	if err != nil {
		t.Error(err)
	}
}

// ask has host i ask a server for its text.
func ask(client *http.Client, i, to, size int) error {
	body := text(1000+i, size)
	resp, err := client.Post(fmt.Sprintf("http://%v:80/", worldtest.Addr(to)), "application/octet-stream", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if want := append(body, text(to, size)...); !bytes.Equal(got, want) {
		return fmt.Errorf("host %d got %d bytes of host %d, which are not those that were sent", i, len(got), to)
	}
	return nil
}
