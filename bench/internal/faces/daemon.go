package faces

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/bench/internal/stats"
)

// daemon runs rocev2d, or has connections with one and looks at its admin
// listener.
type daemon struct {
	*base
	cmd  *exec.Cmd
	peer place
}

// place is where a daemon is.
type place struct {
	Regions string `json:"regions"`
	Admin   string `json:"admin"`
	PID     int    `json:"pid"`
}

const regionsPort = "7470" // where rocev2d serves its regions

// Hello starts the daemon.
func (d *daemon) Hello() (any, error) {
	if d.cfg.Active {
		return d.base.Hello()
	}
	p := place{Regions: net.JoinHostPort(d.cfg.Addr, regionsPort)}
	d.cmd = exec.Command(d.cfg.Bin, "--device", d.cfg.Addr, "--region", cmp.Or(d.cfg.Region, "scratch=1MiB;write"), "--admin", "127.0.0.1:0", "--log-format", "json")
	log, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	p.PID = d.cmd.Process.Pid
	var said []string
	for s := bufio.NewScanner(log); s.Scan(); {
		var line struct{ Msg, URL string }
		said = append(said, s.Text())
		if err := json.Unmarshal(s.Bytes(), &line); err != nil {
			continue
		}
		if line.URL != "" {
			p.Admin = line.URL
		}
		if line.Msg == "ready" {
			go io.Copy(io.Discard, log) // to the end of the process
			return p, nil
		}
	}
	return nil, fmt.Errorf("rocev2d has ended: %s", strings.Join(said, "\n"))
}

// Connect takes where the daemon is.
func (d *daemon) Connect(raw json.RawMessage) error {
	if !d.cfg.Active {
		return nil
	}
	return json.Unmarshal(raw, &d.peer)
}

// Close ends the daemon.
func (d *daemon) Close() error {
	if d.cmd != nil && d.cmd.Process != nil {
		_ = d.cmd.Process.Signal(os.Interrupt) // it may have ended
		timer := time.AfterFunc(5*time.Second, func() { _ = d.cmd.Process.Kill() })
		_ = d.cmd.Wait()
		timer.Stop()
	}
	return d.base.Close()
}

// Run looks at the daemon.
func (d *daemon) Run(stop <-chan struct{}) (pair.Result, error) {
	r := newResult()
	if !d.cfg.Active {
		<-stop
		return r, nil
	}
	if d.cfg.Test == Resting {
		return r, d.rest(&r)
	}
	i := idle{base: d.base}
	i.base.peer, i.cfg.Conns = d.peer.Regions, d.cfg.Conns
	if err := i.dialAll(); err != nil {
		return r, err
	}
	m := memoryOf(d.peer.PID)
	r.Values["rss_mb"], r.Values["pss_mb"] = m.rss, m.pss
	if d.cfg.Test == Page {
		ms, err := firstPaint(d.ctx, d.peer.Admin)
		r.Values["paint_ms"] = ms
		return r, err
	}
	return r, d.scrape(&r)
}

// scrape gets the metrics as Prometheus does.
func (d *daemon) scrape(r *pair.Result) error {
	var times []uint32
	for range 3 + 20 {
		t0 := time.Now()
		resp, err := http.Get(d.peer.Admin + "metrics")
		if err != nil {
			return err
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("GET /metrics: %s", resp.Status)
		}
		times = append(times, uint32(time.Since(t0)/time.Microsecond))
		r.Values["bytes"] = float64(len(b))
	}
	times = times[3:]
	r.Values["p50_ms"] = stats.Percentile(times, 50) / 1e3
	r.Values["max_ms"] = stats.Percentile(times, 100) / 1e3
	return nil
}

// rest looks at what the daemon uses while nothing happens.
func (d *daemon) rest(r *pair.Result) error {
	time.Sleep(2 * time.Second) // it has just begun
	before, err := cpuOf(d.peer.PID)
	if err != nil {
		return err
	}
	begin := time.Now()
	time.Sleep(max(10*d.cfg.Measure, 4*time.Second))
	after, err := cpuOf(d.peer.PID)
	if err != nil {
		return err
	}
	r.Values["cpu_percent"] = 100 * (after - before).Seconds() / time.Since(begin).Seconds()
	m := memoryOf(d.peer.PID)
	r.Values["rss_mb"], r.Values["pss_mb"] = m.rss, m.pss
	return nil
}

// cpuOf returns the time on processors of all threads of a process, in
// nanoseconds as the scheduler counts it: its clock ticks are too coarse for a
// process that hardly runs.
func cpuOf(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		field, _, _ := strings.Cut(string(b), " ")
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n)
	}
	if len(files) == 0 {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	return sum, nil
}
