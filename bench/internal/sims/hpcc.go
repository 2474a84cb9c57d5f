package sims

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/fabric/traffic"
)

// Load is a load on the network of 320 hosts of the HPCC paper: 50 % of what
// the hosts' cables carry, for some time.
type Load struct {
	Name, What string
	Sizes      string
	Until      time.Duration
	law        law
}

// law is congestion control as ns-3's config has it, and as ours.
//
// The parameters are those of the simulator's run.py for 100 Gb/s: DCQCN as
// adapters have it; HPCC with an increase of 40 Mb/s, which in the 13 µs of the
// network are 65 bytes.
type law struct {
	name, adapter string
	config        []string
}

var (
	dcqcn = law{"DCQCN", `control = "dcqcn-adapter,ai=20M,hai=200M,min=1G"` + "\nnotify = \"4us\"\n", []string{
		"CC_MODE 1", "RATE_AI 20Mb/s", "RATE_HAI 200Mb/s", "HAS_WIN 0", "VAR_WIN 0", "FAST_REACT 0", "ACK_HIGH_PRIO 1", "INT_MULTI 1"}}
	hpcc = law{"HPCC", `control = "hpcc,stages=0,wai=65"` + "\n", []string{
		"CC_MODE 3", "RATE_AI 40Mb/s", "RATE_HAI 40Mb/s", "HAS_WIN 1", "VAR_WIN 1", "FAST_REACT 1", "ACK_HIGH_PRIO 0", "INT_MULTI 4"}}
)

// Loads are all that are played beside ns-3.
func Loads() (all []Load) {
	for _, of := range []struct {
		sizes string
		until time.Duration
	}{{"hadoop", 200 * time.Microsecond}, {"websearch", 500 * time.Microsecond}} {
		for _, l := range []law{dcqcn, hpcc} {
			all = append(all, Load{of.sizes + "-" + strings.ToLower(l.name), fmt.Sprintf("flows of %s at 50 %% for %v on 320 hosts, %s", of.sizes, of.until, l.name), of.sizes, of.until, l})
		}
	}
	return all
}

const (
	hpccHosts   = 320
	hpccPayload = 1024
	hpccBegin   = 2 * time.Second // ns-3's flows begin there
	hpccDrain   = 8 * time.Millisecond
	// The network of the paper, in the tree of its simulator.
	hpccTopology = "mix/fat.txt"
)

// modules are those of ns-3 that the simulator has code of.
const modules = "core,network,internet,point-to-point,applications,config-store,tools,mpi,bridge"

// Python returns a Python 2, which the build of ns-3.17 needs; named, or one of
// PATH.
func Python(ctx context.Context, named string) (string, error) {
	names := []string{"python2.7", "python2"}
	if named != "" {
		names = []string{named}
	}
	for _, name := range names {
		out, err := exec.CommandContext(ctx, name, "-c", "import sys; print(sys.version_info[0])").Output()
		if err == nil && strings.TrimSpace(string(out)) == "2" {
			return name, nil
		}
	}
	return "", fmt.Errorf("the build of ns-3.17 needs Python 2, and %s is none: say -python2 FILE, or -hpcc none", strings.Join(names, " or "))
}

// BuildHPCC builds the simulator, without what it does not need of ns-3, and
// returns its folder.
func BuildHPCC(ctx context.Context, tree, python string) (string, error) {
	if err := need("ns-3", "g++"); err != nil {
		return "", err
	}
	dir := filepath.Join(tree, "simulation")
	for _, args := range [][]string{{"-d", "optimized", "--enable-modules=" + modules, "configure"}, {"-j" + strconv.Itoa(runtime.NumCPU())}} {
		c := exec.CommandContext(ctx, python, append([]string{"./waf"}, args...)...)
		c.Dir = dir
		c.Env = append(c.Environ(), "CXXFLAGS=-w -fpermissive") // what compilers of its time let pass
		if err := tell(c); err != nil {
			return "", fmt.Errorf("building ns-3: waf %s: %w", strings.Join(args, " "), err)
		}
	}
	return dir, nil
}

// flows returns the flows of a seed.
func (l *Load) flows(seed uint64) ([]traffic.Flow, error) {
	sizes, err := traffic.ByName(l.Sizes)
	if err != nil {
		return nil, err
	}
	s, err := traffic.Load{Hosts: hpccHosts, Sizes: sizes, Rate: 100e9, Load: 500_000, Until: l.Until.Nanoseconds() * 1000}.Stream(source(seed))
	if err != nil {
		return nil, err
	}
	var flows []traffic.Flow
	for f, ok := s.Next(); ok; f, ok = s.Next() {
		flows = append(flows, f)
	}
	return flows, nil
}

// list writes flows as ns-3 reads them, which ours reads, too. Starts are whole
// nanoseconds.
func list(flows []traffic.Flow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n", len(flows))
	for _, f := range flows {
		at := hpccBegin.Nanoseconds() + f.At/1000
		fmt.Fprintf(&b, "%d %d 3 100 %d %d.%09d\n", f.Src, f.Dst, f.Bytes, at/1e9, at%1e9)
	}
	return b.String()
}

// config writes what ns-3 reads. What is not of the law is as in run.py; no
// queue is watched, and no packet is recorded.
func (l *Load) config() string {
	lines := append([]string{
		"ENABLE_QCN 1", "USE_DYNAMIC_PFC_THRESHOLD 1", fmt.Sprintf("PACKET_PAYLOAD_SIZE %d", hpccPayload),
		"TOPOLOGY_FILE " + topologyFile, "FLOW_FILE " + flowsFile, "TRACE_FILE trace.txt", "TRACE_OUTPUT_FILE trace.out",
		"FCT_OUTPUT_FILE " + fctFile, "PFC_OUTPUT_FILE pfc.out",
		fmt.Sprintf("SIMULATOR_STOP_TIME %.9f", (hpccBegin + l.Until + hpccDrain).Seconds()),
		"ALPHA_RESUME_INTERVAL 1", "RATE_DECREASE_INTERVAL 4", "CLAMP_TARGET_RATE 0", "RP_TIMER 300", "EWMA_GAIN 0.00390625",
		"FAST_RECOVERY_TIMES 1", "MIN_RATE 1000Mb/s", "DCTCP_RATE_AI 1000Mb/s", "ERROR_RATE_PER_LINK 0", "L2_CHUNK_SIZE 4000",
		"L2_ACK_INTERVAL 1", "L2_BACK_TO_ZERO 0", "GLOBAL_T 1", "U_TARGET 0.95", "MI_THRESH 0", "MULTI_RATE 0", "SAMPLE_FEEDBACK 0",
		"PINT_LOG_BASE 1.01", "PINT_PROB 1.0", "RATE_BOUND 1", "LINK_DOWN 0 0 0", "ENABLE_TRACE 0",
		"KMAX_MAP 2 100000000000 1600 400000000000 6400", "KMIN_MAP 2 100000000000 400 400000000000 1600", "PMAX_MAP 2 100000000000 0.2 400000000000 0.2",
		"BUFFER_SIZE 32", "QLEN_MON_FILE qlen.out", "QLEN_MON_START 3000000000", "QLEN_MON_END 3000000000",
	}, l.law.config...)
	return strings.Join(lines, "\n") + "\n"
}

const fctFile = "fct.out"

// scenario writes the same for the product's simulator.
func (l *Load) scenario() string {
	return fmt.Sprintf("name = %q\nlimit = \"100ms\"\n[network]\ntopology = \"file\"\nfile = %q\nformat = \"ns3\"\nprofile = \"hpcc-sim\"\n[adapter]\nmtu = %d\n%s[[traffic]]\nkind = \"list\"\nformat = \"ns3\"\nrebase = true\nfile = %q\n",
		l.Name, topologyFile, hpccPayload, l.law.adapter, flowsFile)
}

// playHPCC plays the files of a directory in ns-3.
func (l *Load) playHPCC(ctx context.Context, limit time.Duration, tree, dir string, flows []traffic.Flow, a *alone) (Run, error) {
	for file, text := range map[string]string{"config.txt": l.config(), "trace.txt": "0\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			return Run{}, err
		}
	}
	build := filepath.Join(tree, "build")
	_, r, err := program(ctx, limit, dir, []string{"LD_LIBRARY_PATH=" + build}, filepath.Join(build, "scratch", "third"), "config.txt")
	if err != nil {
		return r, fmt.Errorf("ns-3: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, fctFile))
	if err != nil {
		return r, fmt.Errorf("ns-3: %w", err)
	}
	all, err := readFCT(text, len(flows), a)
	if err == nil {
		err = r.slowdowns(all, a)
	}
	if err != nil {
		return r, fmt.Errorf("ns-3: %w", err)
	}
	return r, nil
}

// readFCT reads what ns-3 has written of that many flows, one a line:
// addresses, ports, bytes, start, time it took, and what it takes alone, in ns.
// What it takes alone is what this package says, or neither is to be believed.
func readFCT(text []byte, flows int, a *alone) ([]done, error) {
	var all []done
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		number := len(all) + 1
		words := strings.Fields(s.Text())
		if len(words) != 8 {
			return nil, fmt.Errorf("%s:%d has %d words, not 8", fctFile, number, len(words))
		}
		var hosts [2]int32
		for i, word := range words[:2] {
			v, err := strconv.ParseUint(word, 16, 32)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %q is no address", fctFile, number, word)
			}
			hosts[i] = int32(v >> 8 & 0xffff)
		}
		var n [4]int64
		for i, word := range words[4:] {
			v, err := strconv.ParseInt(word, 10, 64)
			if err != nil || v <= 0 {
				return nil, fmt.Errorf("%s:%d: %q is no number above 0", fctFile, number, word)
			}
			n[i] = v
		}
		f := done{hosts[0], hosts[1], n[0], float64(n[1]), float64(n[2])}
		ns, err := a.of(f.src, f.dst, f.bytes)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", fctFile, number, err)
		}
		if ns != n[3] {
			return nil, fmt.Errorf("%s:%d: alone the flow takes %d ns there, and %d by the formula of this command: slowdowns are not comparable", fctFile, number, n[3], ns)
		}
		all = append(all, f)
	}
	if len(all) != flows || flows == 0 {
		return nil, fmt.Errorf("%d of %d flows have completed by the end of the run", len(all), flows)
	}
	return all, nil
}
