package pair

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// The test's own program is the worker, as rocebench is outside of tests.
func TestMain(m *testing.M) {
	Register("test", func(b []byte) (Side, error) {
		s := &testSide{}
		return s, json.Unmarshal(b, s)
	})
	if len(os.Args) > 1 && os.Args[1] == WorkerArg {
		os.Exit(Worker(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// testSide says its name and reports the peer's.
type testSide struct {
	Name   string `json:"name"`
	Active bool   `json:"active"`
	Fail   string `json:"fail"` // where
	peer   string
}

func (s *testSide) at(where string) error {
	switch s.Fail {
	case where:
		return errors.New("broken at " + where)
	case "exit at " + where:
		os.Stderr.WriteString("out of luck\n")
		os.Exit(3)
	}
	return nil
}

func (s *testSide) Hello() (any, error) { return s.Name, s.at("hello") }
func (s *testSide) Connect(peer json.RawMessage) error {
	return errors.Join(json.Unmarshal(peer, &s.peer), s.at("connect"))
}
func (s *testSide) Close() error { return nil }
func (s *testSide) Run(stop <-chan struct{}) (Result, error) {
	if !s.Active {
		<-stop
	}
	return Result{Counts: map[string]uint64{"met " + s.peer: 1}}, s.at("run")
}

func TestBothSidesMeetAndReport(t *testing.T) {
	t.Parallel()
	for _, both := range []bool{false, true} {
		a, b, err := Run(t.Context(), "test", Role{Config: testSide{Name: "a", Active: both}, Active: both},
			Role{Config: testSide{Name: "b", Active: true}, Active: true}, time.Minute)
		if err != nil || a.Counts["met b"] != 1 || b.Counts["met a"] != 1 {
			t.Errorf("both active %v: %+v, %+v, %v", both, a, b, err)
		}
	}
}

// Each of many workers meets the one, which learns of all.
func TestFan(t *testing.T) {
	t.Parallel()
	var spokes []any
	for i := range 5 {
		spokes = append(spokes, testSide{Name: fmt.Sprint(i), Active: true})
	}
	share := func(h []json.RawMessage) ([]json.RawMessage, error) {
		all, err := json.Marshal(fmt.Sprintf("%s", h[1:]))
		peers := []json.RawMessage{all}
		for range h[1:] {
			peers = append(peers, h[0])
		}
		return peers, err
	}
	hub, others, err := Fan(t.Context(), "test", testSide{Name: "hub"}, spokes, share, time.Minute)
	if err != nil || hub.Counts[`met ["0" "1" "2" "3" "4"]`] != 1 || len(others) != 5 {
		t.Fatalf("%+v, %+v, %v", hub, others, err)
	}
	for _, r := range others {
		if r.Counts["met hub"] != 1 {
			t.Errorf("%+v", r)
		}
	}
	spokes[3] = testSide{Active: true, Fail: "run"}
	if _, _, err := Fan(t.Context(), "test", testSide{Name: "hub"}, spokes, share, time.Minute); err == nil || !strings.Contains(err.Error(), "broken at run") {
		t.Errorf("error %v", err)
	}
}

// What goes wrong in a worker is said by the parent, in the worker's words.
func TestFailuresAreTold(t *testing.T) {
	t.Parallel()
	for fail, want := range map[string]string{
		"hello": "broken at hello", "connect": "broken at connect", "run": "broken at run",
		"exit at hello": "out of luck", "exit at connect": "out of luck", "exit at run": "out of luck",
	} {
		for _, passive := range []bool{true, false} {
			p, a := testSide{Name: "a"}, testSide{Name: "b", Active: true}
			if passive {
				p.Fail = fail
			} else {
				a.Fail = fail
			}
			_, _, err := Run(t.Context(), "test", Role{Config: p}, Role{Config: a, Active: true}, time.Minute)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, passive %v: %v, want %q", fail, passive, err, want)
			}
		}
	}
	if _, _, err := Run(t.Context(), "unheard of", Role{}, Role{}, time.Minute); err == nil || !strings.Contains(err.Error(), "unheard of") {
		t.Errorf("a kind that does not exist: %v", err)
	}
}
