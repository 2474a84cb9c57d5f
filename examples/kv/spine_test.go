package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/fabric/worldtest"
	"github.com/gosoftroce/rocev2/rdma"
)

// The network of the test, and what happens to it.
const (
	leaves, spines, perLeaf = 4, 4, 4
	hosts                   = leaves * perLeaf

	converge = 20 * time.Millisecond  // from a failure until the leaves know of it
	fails    = 100 * time.Millisecond // spine 0
	repaired = 200 * time.Millisecond
	ends     = 300 * time.Millisecond
)

// phases are what is reported of, each until a time.
var phases = []struct {
	name  string
	until time.Duration
}{
	{"before", fails},
	{"spine down", fails + converge},
	{"other ways", repaired},
	{"repaired", ends},
}

// seen is how long requests took, by phase.
type seen struct {
	mu   sync.Mutex
	took [4][]time.Duration
}

func (s *seen) add(begun, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if begun < fails && begun+took > fails {
		begun = fails // it was under way
	}
	for i := range phases {
		if begun < phases[i].until {
			s.took[i] = append(s.took[i], took)
			return
		}
	}
}

// report writes a table.
func (s *seen) report(w io.Writer) {
	fmt.Fprintf(w, "%-12s %9s %12s %12s %12s\n", "", "requests", "median", "99 %", "longest")
	for i, took := range s.took {
		slices.Sort(took)
		fmt.Fprintf(w, "%-12s %9d %12v %12v %12v\n", phases[i].name, len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
	}
}

// The store of main, with a server on one host and clients on twelve others, of
// other leaves. In mid-run a spine switch goes down: each cable of it.
// Until the leaves send around it some requests wait. All are carried out, and
// what is read is what was put.
func TestFailingSpine(t *testing.T) {
	log.SetOutput(io.Discard)
	defer log.SetOutput(os.Stderr)
	synctest.Test(t, func(t *testing.T) {
		cable := topology.Cable{Rate: 100 * topology.Gbps, Delay: topology.Microsecond}
		g, err := topology.LeafSpine{Leaves: leaves, Spines: spines, HostsPerLeaf: perLeaf, Host: cable}.Graph()
		if err != nil {
			t.Fatal(err)
		}
		n, err := g.Network(topology.Plan{Profile: topology.Spectrum(), Converge: event.Of(converge)})
		if err != nil {
			t.Fatal(err)
		}
		w := worldtest.New(t, worldtest.Config{Network: n})
		setSpine := func(up bool) {
			for leaf := range leaves {
				w.SetCable(hosts+leaf*spines, up) // to spine 0
			}
		}
		time.AfterFunc(fails, func() { setSpine(false) })
		time.AfterFunc(repaired, func() { setSpine(true) })

		ctx, stop := context.WithCancel(t.Context())
		var server, clients sync.WaitGroup
		addr := worldtest.Addr(0).String() + ":7471"
		server.Go(func() {
			if err := serve(ctx, &rdma.ListenConfig{Device: w.Device(0)}, addr); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		var saw seen
		for host := perLeaf; host < hosts; host++ {
			d := &rdma.Dialer{Device: w.Device(host), WaitForServer: true}
			clients.Go(func() {
				if err := client(ctx, d, addr, func(s *store) error { return use(w, s, host, &saw) }); err != nil {
					t.Errorf("the client on host %d: %v", host, err)
				}
			})
		}
		clients.Wait()
		stop()
		server.Wait()

		var table strings.Builder
		saw.report(&table)
		t.Logf("%d clients:\n%s", hosts-perLeaf, table.String())
		for i, took := range saw.took {
			longest := took[len(took)-1]
			if waits := longest > time.Millisecond; waits != (phases[i].name == "spine down") {
				t.Errorf("%s: the longest request takes %v", phases[i].name, longest)
			}
		}
	})
}

// use puts and gets a key of its own until the end.
func use(w *worldtest.World, s *store, host int, saw *seen) error {
	r := rand.New(rand.NewPCG(1, uint64(host)))
	key := fmt.Sprintf("host %d", host)
	for round := 0; w.Now() < ends; round++ {
		begun := w.Now()
		value := fmt.Sprintf("round %d", round)
		if err := s.put(key, value); err != nil {
			return err
		}
		got, err := s.get(key)
		if err != nil || got != value {
			return fmt.Errorf("%q has the value %q in round %d (%w)", key, got, round, err)
		}
		saw.add(begun, w.Now()-begun)
		time.Sleep(time.Duration(r.IntN(1_000_000))) // of virtual time, up to a millisecond
	}
	return nil
}
