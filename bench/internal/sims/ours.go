package sims

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Ours builds the product's tool from the tree of the current directory, and
// returns the file.
func Ours(ctx context.Context, work string) (string, error) {
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/gosoftroce/rocev2").Output()
	if err != nil {
		return "", fmt.Errorf("the product's tool is built in the folder bench of its repository: go list: %w", err)
	}
	to := filepath.Join(work, "rocev2")
	c := exec.CommandContext(ctx, "go", "build", "-o", to, "./cmd/rocev2")
	c.Dir = strings.TrimSpace(string(dir))
	c.Env = append(c.Environ(), "CGO_ENABLED=0") // as it is packaged
	if err := tell(c); err != nil {
		return "", fmt.Errorf("building the product's tool: %w", err)
	}
	return to, nil
}

// Files in the directory of a run.
const (
	topologyFile = "network.topo"
	matrixFile   = "flows.cm"
	scenarioFile = "scenario.toml"
	flowsFile    = "flows.txt"
)

// scenario writes the network and the flows for the product's simulator.
//
// A port is paused at 15 packets with 64 bytes of headers, as in htsim: what
// the profile reserves for it, and a 256th of the free buffer. Reserves and
// headroom are 128 KB a port.
func (w *Workload) scenario(k kind) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name = %q\nlimit = \"100ms\"\n[network]\ntopology = \"file\"\nfile = %q\nformat = \"htsim\"\nprofile = \"spectrum\"\nred = { kmax = \"0B\" }\n", w.Name, topologyFile)
	window := "4MiB" // all of a flow, as htsim's RoCE has no window
	switch {
	case k == oursSpray:
		window = "512KiB"
		fmt.Fprint(&b, "lossy = true\nrouting = \"spray\"\n")
	case w.pauses == never:
		fmt.Fprint(&b, "alpha = -2\nbuffer = \"1GB\"\n")
	default:
		fmt.Fprintf(&b, "alpha = -8\nbuffer = \"%dB\"\n", 256*(15*(mtu+64)-19_456)+w.ports*128_000)
	}
	fmt.Fprintf(&b, "[adapter]\nmtu = %d\ncontrol = \"static\"\nwindow = %q\n", mtu, window)
	fmt.Fprintf(&b, "[[traffic]]\nkind = \"list\"\nformat = \"htsim\"\nfile = %q\n", matrixFile)
	return b.String()
}

// summary is what is read of rocev2 sim --json.
type summary struct {
	Completed  int     `json:"flows_completed"`
	Failed     int     `json:"flows_failed"`
	Unfinished int     `json:"flows_unfinished"`
	Last       float64 `json:"last_us"`
	Events     int64   `json:"events"`
	Hops       int64   `json:"hops"`
}

// readOurs reads what rocev2 sim --json has printed of that many flows.
func readOurs(out []byte, flows int, r *Run) error {
	var s summary
	if err := json.Unmarshal(out, &s); err != nil {
		return err
	}
	if s.Completed != flows || flows == 0 || s.Failed+s.Unfinished > 0 {
		return fmt.Errorf("%d of %d flows have completed, %d have failed", s.Completed, flows, s.Failed)
	}
	r.Flows, r.Last, r.Events, r.Hops = s.Completed, s.Last, s.Events, s.Hops
	return nil
}

// playOurs plays the scenario of a directory, and then again for the table of
// flows, which costs more and so is not what is measured.
func playOurs(ctx context.Context, limit time.Duration, tool, dir string, seed uint64, flows int) (Run, []done, error) {
	sim := []string{"sim", "./" + scenarioFile, "--seed", strconv.FormatUint(seed, 10)}
	out, r, err := program(ctx, limit, dir, nil, tool, append(sim, "--json")...)
	if err == nil {
		err = readOurs(out, flows, &r)
	}
	if err != nil {
		return r, nil, fmt.Errorf("rocev2 sim: %w", err)
	}
	tables := filepath.Join(dir, "tables")
	defer os.RemoveAll(tables)
	if _, _, err := program(ctx, limit, dir, nil, tool, append(sim, "--out", "tables")...); err != nil {
		return r, nil, fmt.Errorf("rocev2 sim --out: %w", err)
	}
	f, err := os.Open(filepath.Join(tables, "flows.csv"))
	if err != nil {
		return r, nil, err
	}
	defer f.Close()
	all, err := readFlows(f)
	if err == nil && len(all) != flows {
		err = fmt.Errorf("flows.csv has %d of %d flows", len(all), flows)
	}
	return r, all, err
}

// meanEnd returns the mean of the times in microseconds at which flows end.
func meanEnd(all []done) float64 {
	sum := 0.0
	for _, f := range all {
		sum += (f.start + f.took) / 1e3
	}
	return sum / float64(len(all))
}
