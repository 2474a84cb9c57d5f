package ours

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// introduced makes both sides of a stream, the passive one first, on devices of
// a simulated network.
func introduced(t *testing.T, c Config, device verbs.Config) (passive, active *stream) {
	a, b := verbstest.Devices(t, verbstest.Config{Device: device})
	sides := []*stream{{side: &side{cfg: c, dev: a}}, {side: &side{cfg: c, dev: b}}}
	sides[1].cfg.Active = true
	var hellos []json.RawMessage
	for _, s := range sides {
		h, err := s.Hello()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		hellos = append(hellos, raw)
	}
	for i, s := range sides {
		if err := s.Connect(hellos[1-i]); err != nil {
			t.Fatal(err)
		}
	}
	return sides[0], sides[1]
}

// All packets of a run leave sealed, and are opened.
func TestSealed(t *testing.T) {
	t.Parallel()
	for _, seal := range []Seal{GCM128, GMAC128} {
		synctest.Test(t, func(t *testing.T) {
			c := Config{Test: Stream, Op: "write", Size: 64 << 10, QPs: 2, Depth: 4, Burst: 1, MTU: 1024, Seal: seal}
			passive, active := introduced(t, c, verbs.Config{Sealing: true})
			r, err := active.Run(nil)
			if err != nil || len(r.Errors) > 0 || r.Counts["psp_sealed"] < 64 {
				t.Errorf("%s: counts %v, errors %v, %v", seal, r.Counts, r.Errors, err)
			}
			p := newResult()
			if passive.mishaps(&p); len(p.Errors) > 0 || p.Counts["psp_opened"] < 64 {
				t.Errorf("%s, passive: counts %v, errors %v", seal, p.Counts, p.Errors)
			}
		})
	}
}

// A run whose packets were to be sealed, and were not, has no value.
func TestNotSealed(t *testing.T) {
	t.Parallel()
	a, _ := verbstest.Devices(t)
	s := &side{cfg: Config{Seal: GCM128}, dev: a}
	r := newResult()
	if s.mishaps(&r); r.Errors["no packet was sealed"] != 1 {
		t.Errorf("errors %v", r.Errors)
	}
}

func TestSealOfConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ config, err string }{
		{`{"test":"stream","seal":"gcm128"}`, ""},
		{`{"test":"stream","seal":"rot13"}`, `not sealed with "rot13", but with gcm128 or gmac128`},
	} {
		_, err := open([]byte(c.config))
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.config, err, c.err)
		}
	}
}
