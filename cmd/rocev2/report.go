package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/programs/interop/perftest"
)

// printer shows the results of a test.
type printer interface {
	start(perftest.Setup)
	result(perftest.Result)
	end() error
}

// reportFlags are the flags that say how results are shown.
type reportFlags struct {
	json         bool
	gbits        bool
	noPeak       bool
	outJSON      bool
	outJSONFile  string
	output       string
	limitBW      float64
	limitMsgRate float64
}

// defaultJSONFile is perftest's.
const defaultJSONFile = "perftest_out.json"

func (f *reportFlags) register(cmd *cobra.Command, bandwidth bool) {
	fs := cmd.Flags()
	if bandwidth {
		fs.BoolVar(&f.gbits, "report_gbits", false, "report in units of 10^9 bits a second instead of 2^20 bytes a second")
		fs.BoolVarP(&f.noPeak, "noPeak", "N", false, "report a peak of 0 (as with -D and beyond 20000 iterations)")
		fs.BoolVar(&f.noPeak, "no_peak", false, "the same as --noPeak")
		fs.MarkHidden("no_peak")
		fs.Float64VarP(&f.limitBW, "limit_bw", "w", 0, "fail if the average bandwidth is below this `value`, in the unit of the report")
		fs.Float64VarP(&f.limitMsgRate, "limit_msgrate", "y", 0, "fail if the message rate is below this `value`, in 10^6 messages a second")
	}
	fs.StringVar(&f.output, "output", "", "print only the number that `what` names: bandwidth or message_rate; in a latency test, latency")
	fs.BoolVar(&f.outJSON, "out_json", false, "also write the report to a JSON file")
	fs.StringVar(&f.outJSONFile, "out_json_file", defaultJSONFile, "`name` of the JSON file")
	fs.BoolVar(&f.json, "json", false, "print one JSON object a line instead of a table")
}

func (f *reportFlags) checkReport(c perftest.Config) error {
	latency := c.Test.Kind == perftest.Latency
	switch {
	case f.output == "", f.output == "latency" && latency, !latency && (f.output == "bandwidth" || f.output == "message_rate"):
	case latency:
		return usagef("--output %s: a latency test can print only latency", f.output)
	default:
		return usagef("--output %s: a bandwidth test can print bandwidth or message_rate", f.output)
	}
	if f.output != "" && f.json {
		return usagef("--output and --json do not go together: print one number, or JSON")
	}
	if !(f.limitBW >= 0) || !(f.limitMsgRate >= 0) {
		return usagef("-w %v -y %v: a limit must be a positive number", f.limitBW, f.limitMsgRate)
	}
	if !f.outJSON {
		return nil
	}
	file, err := os.OpenFile(f.outJSONFile, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return usagef("--out_json_file: %w", err)
	}
	return file.Close()
}

// printer makes what shows the results.
func (f *reportFlags) printer(out io.Writer, c perftest.Config, device string, gidIndex int) printer {
	var p printer
	switch {
	case f.json:
		p = &jsonLines{out: out}
	case f.output != "":
		p = &oneNumber{out: out, flags: f}
	default:
		p = &table{out: out, cfg: c, flags: f, device: device, gidIndex: gidIndex}
	}
	if f.outJSON {
		p = &jsonFile{printer: p, cfg: c, flags: f, device: device, gidIndex: gidIndex}
	}
	return p
}

// unit returns how many bytes a second are one in the report.
func (f *reportFlags) unit() float64 {
	if f.gbits {
		return 1e9 / 8
	}
	return 1 << 20
}

// mostPeak is beyond how many iterations perftest keeps no peak.
const mostPeak = 20000

// peak returns the peak in bytes a second as perftest reports it.
func (f *reportFlags) peak(c perftest.Config, r perftest.Result) float64 {
	if f.noPeak || c.Duration > 0 || c.Endless || c.Iterations > mostPeak {
		return 0
	}
	return r.Peak
}

// limits returns an error if the results do not reach what the user asked for.
func (f *reportFlags) limits(res []perftest.Result) error {
	for _, r := range res {
		if got := r.Average / f.unit(); got < f.limitBW {
			return fmt.Errorf("BW result is below bw limit: %.2f with messages of %d bytes; the limit (-w) is %v", got, r.Size, f.limitBW)
		}
		if got := r.MsgRate / 1e6; got < f.limitMsgRate {
			return fmt.Errorf("message rate is below msg_rate limit: %.6f with messages of %d bytes; the limit (-y) is %v", got, r.Size, f.limitMsgRate)
		}
	}
	return nil
}

// oneNumber prints a number for each result.
type oneNumber struct {
	out   io.Writer
	flags *reportFlags
	err   error
}

func (o *oneNumber) start(perftest.Setup) {}
func (o *oneNumber) end() error           { return o.err }

func (o *oneNumber) result(r perftest.Result) {
	n := r.Average / o.flags.unit()
	switch o.flags.output {
	case "message_rate":
		n = r.MsgRate / 1e6
	case "latency":
		n = usec(r.Latency.Average)
	}
	if _, err := fmt.Fprintf(o.out, "%f\n", n); err != nil && o.err == nil {
		o.err = err
	}
}

// jsonLines prints a JSON object a line.
type jsonLines struct {
	out io.Writer
	err error
}

// jsonResult is the form of a line.
type jsonResult struct {
	Op            string  `json:"op"`
	Service       string  `json:"service"`
	Role          string  `json:"role"`
	Size          int     `json:"size"`
	QPs           int     `json:"qps"`
	MTU           int     `json:"mtu"`
	Bidirectional bool    `json:"bidirectional"`
	Iterations    uint64  `json:"iterations"`
	Seconds       float64 `json:"seconds"`
	Gbps          float64 `json:"gbps"`
	Mpps          float64 `json:"mpps"`
	Lost          uint64  `json:"lost"`
	Secured       bool    `json:"secured"`
	Cipher        string  `json:"cipher,omitempty"` // of the packets
	*jsonLatency
}

type jsonLatency struct {
	Min  float64 `json:"lat_us_min"`
	P50  float64 `json:"lat_us_p50"`
	Avg  float64 `json:"lat_us_avg"`
	P99  float64 `json:"lat_us_p99"`
	P999 float64 `json:"lat_us_p999"`
	Max  float64 `json:"lat_us_max"`
}

func (j *jsonLines) start(perftest.Setup) {}
func (j *jsonLines) end() error           { return j.err }

func (j *jsonLines) result(r perftest.Result) {
	line := jsonResult{
		Op: r.Test.String(), Service: r.Service.String(), Role: r.Role.String(), Size: r.Size, QPs: r.QPs, MTU: r.MTU, Bidirectional: r.Bidirectional,
		Iterations: r.Iterations, Seconds: r.Elapsed.Seconds(), Gbps: r.Gbps(), Mpps: r.MsgRate / 1e6, Lost: r.Lost,
	}
	if s := r.Secured; s != nil {
		line.Secured, line.Cipher = true, s.Packets.String()
	}
	if l := r.Latency; l != nil {
		line.jsonLatency = &jsonLatency{
			Min: usec(l.Min), P50: usec(l.Typical), Avg: usec(l.Average), P99: usec(l.P99), P999: usec(l.P999), Max: usec(l.Max),
		}
	}
	if err := json.NewEncoder(j.out).Encode(line); err != nil && j.err == nil {
		j.err = err
	}
}
