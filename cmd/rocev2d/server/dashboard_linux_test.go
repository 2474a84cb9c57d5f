package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/observe/metrics"
	"github.com/gosoftroce/rocev2/verbs"
)

const (
	dashboardFile = "../../../packaging/grafana/rocev2d.json"
	rulesDir      = "../../../packaging/prometheus"
	rulesFile     = rulesDir + "/rocev2d.rules.yml"
)

// families returns the metrics of a daemon that has everything that it can have
// metrics of, and the labels of each.
func families(t *testing.T) map[string][]string {
	t.Helper()
	f := newFake("rping")
	d := start(t, func(c *config.Config) {
		c.Programs.Dir = ""
		ca := testcert.New(t)
		c.TLS.Cert, c.TLS.Key, c.TLS.CA = ca.Files(t, t.TempDir(), "daemon", testcert.Subject{CN: "daemon"})
		g := &c.Devices[0].Guard
		g.Cert, g.Key, g.CA = ca.Files(t, t.TempDir(), "host", testcert.Subject{CN: "host", Addr: c.Devices[0].Address})
	}, f.target())
	h := <-f.hosts
	h.Refused(peer(1), os.ErrInvalid)
	lease, err := verbs.OpenAddr(d.addr, verbs.Config{})
	must(t, err)
	t.Cleanup(func() { lease.Close() })
	// A WRITE to a queue pair that is not connected is dropped.
	q := equip(t, h.Device, 2)
	must(t, q[0].Connect(t.Context(), q[1].Endpoint()))
	must(t, q[0].PostSend(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Signaled: true}))
	var body string
	until(t, "the packet is dropped", func() bool {
		_, _, body = d.ask("GET", "/metrics", "")
		return strings.Contains(body, "rocev2_drops_total{") && strings.Contains(body, "rocev2_lease_sealing_total{")
	})
	return familiesOf(body)
}

var (
	seriesForm = regexp.MustCompile(`^([a-z0-9_]+)(?:\{(.*)\})? `)
	labelForm  = regexp.MustCompile(`([a-z_]+)=~?"`)
)

func familiesOf(text string) map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(text) {
		if m := seriesForm.FindStringSubmatch(line); m != nil {
			labels := []string{"job", "instance"} // Prometheus adds them
			for _, l := range labelForm.FindAllStringSubmatch(m[2], -1) {
				labels = append(labels, l[1])
			}
			all[m[1]] = labels
		}
	}
	return all
}

// dashboard is what is looked at of a dashboard of Grafana.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []panel
}

type panel struct {
	ID          int
	Type, Title string
	Datasource  struct{ Type, UID string }
	GridPos     struct{ H, W, X, Y int }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct {
		RefID, Expr, LegendFormat string
		Datasource                struct{ Type, UID string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	b, err := os.ReadFile(dashboardFile)
	must(t, err)
	must(t, json.Unmarshal(b, &d))
	return d
}

type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func readRules(t *testing.T) []rule {
	t.Helper()
	b, err := os.ReadFile(rulesFile)
	must(t, err)
	var v struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	must(t, yaml.UnmarshalStrict(b, &v))
	if len(v.Groups) != 1 || len(v.Groups[0].Rules) == 0 {
		t.Fatalf("%d groups of rules", len(v.Groups))
	}
	return v.Groups[0].Rules
}

var (
	selectorForm = regexp.MustCompile(`([a-zA-Z0-9_:]+)\{([^}]*)\}`)
	stringForm   = regexp.MustCompile(`"[^"]*"`)
	groupForm    = regexp.MustCompile(`\b(?:by|without|on|ignoring)\s*\(([^)]*)\)`)
	rangeForm    = regexp.MustCompile(`\[[^\]]*\]`)
	nameForm     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
)

// notMetrics are the words of the query language that expressions use.
var notMetrics = []string{"sum", "count", "rate", "increase", "changes", "time", "and", "label_values", "by"}

// namesOf returns the names of metrics in an expression of Prometheus, and the
// labels that it asks for, each with the metric, or with "" for a grouping.
func namesOf(expr string) (names []string, labels [][2]string) {
	for _, m := range selectorForm.FindAllStringSubmatch(expr, -1) {
		for _, l := range labelForm.FindAllStringSubmatch(m[2], -1) {
			labels = append(labels, [2]string{m[1], l[1]})
		}
	}
	expr = stringForm.ReplaceAllString(expr, `""`)
	expr = regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(expr, "")
	for _, m := range groupForm.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(m[1], ",") {
			labels = append(labels, [2]string{"", strings.TrimSpace(l)})
		}
	}
	expr = rangeForm.ReplaceAllString(groupForm.ReplaceAllString(expr, ""), "")
	if inner, ok := strings.CutPrefix(expr, "label_values("); ok {
		expr, _, _ = strings.Cut(inner, ",")
	}
	for _, name := range nameForm.FindAllString(expr, -1) {
		if !slices.Contains(notMetrics, name) {
			names = append(names, name)
		}
	}
	return names, labels
}

// wrong says what an expression asks for and the daemon has not.
func wrong(expr string, all map[string][]string) (faults []string) {
	names, labels := namesOf(expr)
	if len(names) == 0 {
		faults = append(faults, "it names no metric")
	}
	for _, name := range names {
		if all[name] == nil {
			faults = append(faults, "there is no metric "+name)
		}
	}
	for _, l := range labels {
		of := []string{l[0]}
		if l[0] == "" {
			of = names
		}
		for _, name := range of {
			if all[name] != nil && !slices.Contains(all[name], l[1]) {
				faults = append(faults, fmt.Sprintf("%s has no label %s", name, l[1]))
			}
		}
	}
	return faults
}

// The check of expressions finds what is wrong with them.
func TestExpressionsCanBeWrong(t *testing.T) {
	t.Parallel()
	all := map[string][]string{"rocev2_a_total": {"job", "device"}, "up": {"job"}}
	for expr, want := range map[string]string{
		`sum by (device) (rate(rocev2_a_total{device=~"$device"}[$__rate_interval]))`: "",
		`up{job="x"} == 0`:               "",
		`label_values(up, job)`:          "",
		`rate(rocev2_b_total[5m]) > 0.1`: "there is no metric rocev2_b_total",
		`rate(rcoev2_a_total[5m])`:       "there is no metric rcoev2_a_total",
		`up{qpn="1"}`:                    "up has no label qpn",
		`sum by (user) (up)`:             "up has no label user",
		`time()`:                         "it names no metric",
	} {
		if got := strings.Join(wrong(expr, all), ", "); got != want {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
}

// withoutPanel are the metrics that no panel shows, and why.
func withoutPanel() map[string]string {
	list := map[string]string{}
	for _, k := range metrics.Known {
		list["rocev2_"+k.Name+"_total"] = "it counts under the name of another driver what another metric counts"
	}
	return list
}

// The dashboard and the alerts name metrics and labels that there are, and
// every metric has a panel, or a reason for none.
func TestDashboardsNameMetricsThatExist(t *testing.T) {
	t.Parallel()
	all := families(t)
	all["up"] = []string{"job", "instance"} // Prometheus makes it
	shown := map[string]bool{}
	check := func(what, expr string) {
		for _, fault := range wrong(expr, all) {
			t.Errorf("%s: %s", what, fault)
		}
		names, _ := namesOf(expr)
		for _, name := range names {
			shown[name] = true
		}
	}
	d := readDashboard(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			check("panel "+p.Title, target.Expr)
		}
	}
	for name := range all {
		why := withoutPanel()[name]
		switch {
		case strings.HasPrefix(name, "rocev2_") && !shown[name] && why == "":
			t.Errorf("no panel shows %s", name)
		case shown[name] && why != "":
			t.Errorf("a panel shows %s, which must not have one: %s", name, why)
		}
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			check("variable "+v.Name, v.Definition)
		}
	}
	for _, r := range readRules(t) {
		check("alert "+r.Alert, r.Expr)
	}
}

var variableForm = regexp.MustCompile(`\$\{?([a-z]+)\b`)

// A panel has all that Grafana needs to show it, and no two overlap.
func TestDashboardIsWellFormed(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	if d.UID == "" || d.Title == "" || d.SchemaVersion < 36 {
		t.Errorf("%q %q of version %d", d.UID, d.Title, d.SchemaVersion)
	}
	variables := []string{}
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	ids, cells := map[int]string{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] != "" || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %q has the number %d of %q", p.Title, p.ID, ids[p.ID])
		}
		ids[p.ID] = p.Title
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q is over %q, or too wide", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Type != "timeseries" && p.Type != "stat" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q of type %s: unit %q, %d queries, data source %q", p.Title, p.Type, p.FieldConfig.Defaults.Unit, len(p.Targets), p.Datasource.UID)
		}
		for i, q := range p.Targets {
			if q.RefID != string(rune('A'+i)) || q.LegendFormat == "" || q.Datasource.UID != "${datasource}" {
				t.Errorf("panel %q: query %q, legend %q, data source %q", p.Title, q.RefID, q.LegendFormat, q.Datasource.UID)
			}
			for _, v := range variableForm.FindAllStringSubmatch(q.Expr, -1) {
				if !slices.Contains(variables, v[1]) {
					t.Errorf("panel %q: there is no variable %s", p.Title, v[1])
				}
			}
		}
	}
}

// Alerts say what happened and what to do, have a test of promtool and a row in
// the documentation, and name reasons of drops that there are.
func TestAlertsAreComplete(t *testing.T) {
	t.Parallel()
	rules := readRules(t)
	tests, err := os.ReadFile(filepath.Join(rulesDir, "rocev2d.rules_test.yml"))
	must(t, err)
	doc, err := os.ReadFile("../../../docs/operations.md")
	must(t, err)
	rows := map[string]string{} // in the documentation, with the severity
	for _, m := range regexp.MustCompile("(?m)^\\| `(Rocev2[A-Za-z]+)` \\| ([a-z]+) \\| .+ \\|$").FindAllStringSubmatch(string(doc), -1) {
		rows[m[1]] = m[2]
	}
	var qs verbs.QPStats
	reasons := map[string]bool{"bad_icrc": true, "unknown_qpn": true, "wrong_source_port": true} // of a device, see verbs.Stats.Drops
	qs.Each(func(name string, _ uint64) {
		if reason, ok := strings.CutPrefix(name, "drop_"); ok {
			reasons[reason] = true
		}
	})
	for _, r := range rules {
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: %v %v", r.Alert, r.Labels, r.Annotations)
		}
		if !strings.Contains(string(tests), fmt.Sprintf(`alertname="%s"`, r.Alert)) {
			t.Errorf("no test of promtool has %s fire", r.Alert)
		}
		if severity := rows[r.Alert]; severity != r.Labels["severity"] {
			t.Errorf("%s has severity %s, in the documentation %q", r.Alert, r.Labels["severity"], severity)
		}
		delete(rows, r.Alert)
		if m := regexp.MustCompile(`reason=~"([^"]*)"`).FindStringSubmatch(r.Expr); m != nil {
			for reason := range strings.SplitSeq(m[1], "|") {
				if !reasons[reason] {
					t.Errorf("%s: there is no reason %s", r.Alert, reason)
				}
			}
		}
	}
	if len(rows) > 0 {
		t.Errorf("the documentation has alerts that do not exist: %v", slices.Sorted(maps.Keys(rows)))
	}
}

// Prometheus takes the rules, and they fire when they should and not on an
// ordinary day.
func TestPromtoolTakesTheAlerts(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (on Debian: apt-get install prometheus)")
	}
	for _, args := range [][]string{{"check", "rules", "rocev2d.rules.yml"}, {"test", "rules", "rocev2d.rules_test.yml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = rulesDir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
