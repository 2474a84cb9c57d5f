package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop/perftest"
)

// jsonFile writes the report to a file besides what another printer shows. The
// names are perftest's. Version 6.06 writes them without quotes, which is not
// JSON; here they have them, as in later versions. With several sizes or
// intervals "results" is a list.
type jsonFile struct {
	printer
	cfg      perftest.Config
	flags    *reportFlags
	device   string
	gidIndex int
	info     ordered
	results  []ordered
}

// ordered is a JSON object whose members keep their order.
type ordered []member

type member struct {
	key   string
	value any
}

func (o *ordered) add(key string, value any) { *o = append(*o, member{key, value}) }

func (o ordered) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		v, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%q:%s", m.key, v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func (j *jsonFile) start(s perftest.Setup) {
	j.printer.start(s)
	j.info = ordered{
		{"test", strings.ReplaceAll(titleOf(j.cfg), " ", "_")}, {"Dual_port", "OFF"}, {"Device", j.device}, {"Number_of_qps", len(s.Local)},
		{"Transport_type", "IB"}, {"Connection_type", j.cfg.Service.String()}, {"Using_SRQ", usingSRQ(j.cfg)},
	}
	for _, f := range facts(j.cfg, s, j.gidIndex) {
		j.info.add(f.key, f.value)
	}
}

// mostIntervals is how many results of a run without end the file keeps.
const mostIntervals = 10000

func (j *jsonFile) result(r perftest.Result) {
	j.printer.result(r)
	o := ordered{{"MsgSize", r.Size}, {"n_iterations", r.Iterations}}
	l := r.Latency
	switch {
	case l == nil:
		o.add("BW_peak", rounded(j.flags.peak(j.cfg, r)/j.flags.unit(), 2))
		o.add("BW_average", rounded(r.Average/j.flags.unit(), 2))
		o.add("MsgRate", rounded(r.MsgRate/1e6, 6))
	case j.cfg.Duration > 0:
		o.add("t_avg", rounded(usec(l.Average), 2))
		o.add("tps_average", rounded(r.MsgRate, 2))
	default:
		for _, t := range []struct {
			key string
			d   time.Duration
		}{
			{"t_min", l.Min}, {"t_max", l.Max}, {"t_typical", l.Typical}, {"t_avg", l.Average}, {"t_stdev", l.StdDev},
			{"percentile_99", l.P99}, {"percentile_99.9", l.P999},
		} {
			o.add(t.key, rounded(usec(t.d), 2))
		}
	}
	if r.Lost > 0 {
		o.add("lost", r.Lost)
	}
	if len(j.results) == mostIntervals {
		j.results = slices.Delete(j.results, 0, 1)
	}
	j.results = append(j.results, o)
}

// rounded rounds to the given number of decimals.
func rounded(v float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}

func (j *jsonFile) end() error {
	report := ordered{{"test_info", j.info}}
	switch len(j.results) {
	case 0:
	case 1:
		report.add("results", j.results[0])
	default:
		report.add("results", j.results)
	}
	b, err := json.MarshalIndent(report, "", "  ")
	if err == nil {
		err = os.WriteFile(j.flags.outJSONFile, append(b, '\n'), 0o644)
	}
	if err2 := j.printer.end(); err2 != nil {
		return err2
	}
	if err != nil {
		return fmt.Errorf("--out_json: %w", err)
	}
	return nil
}
