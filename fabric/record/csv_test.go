package record_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/fabric/record"
)

// rows returns the rows of a table, by the names of its columns.
func rows(t *testing.T, table *record.Table, r *lab.Result) (list []map[string]string) {
	t.Helper()
	var b bytes.Buffer
	if err := table.Write(&b, r); err != nil {
		t.Fatal(err)
	}
	all, err := csv.NewReader(&b).ReadAll() // each row is as long as the first
	if err != nil {
		t.Fatalf("%s: %v", table.Name, err)
	}
	for _, row := range all[1:] {
		m := map[string]string{}
		for i, name := range all[0] {
			m[name] = row[i]
		}
		list = append(list, m)
	}
	return list
}

func tablesOf(t *testing.T, r *lab.Result) map[string][]map[string]string {
	t.Helper()
	all := map[string][]map[string]string{}
	for _, table := range record.Tables() {
		all[table.Name] = rows(t, &table, r)
	}
	return all
}

func sum(t *testing.T, rows []map[string]string, column string) (n uint64) {
	t.Helper()
	for _, row := range rows {
		v, err := strconv.ParseUint(row[column], 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", column, err)
		}
		n += v
	}
	return n
}

// Tables have what the result counts.
func TestTables(t *testing.T) {
	t.Parallel()
	for _, text := range []string{lossy, pausing} {
		r := play(t, text, func(s *lab.Scenario) { s.Output.Record = true })
		all := tablesOf(t, r)
		if n := len(all["flows.csv"]); n != len(r.Flows) {
			t.Errorf("%d flows, want %d", n, len(r.Flows))
		}
		again, dropped := sum(t, all["flows.csv"], "retransmitted_packets"), sum(t, all["totals.csv"], "dropped_packets")
		if again != r.Stats.Retransmits || dropped != r.Totals.Dropped() {
			t.Errorf("%d sent again and %d dropped, want %d and %d", again, dropped, r.Stats.Retransmits, r.Totals.Dropped())
		}
		if marked := sum(t, all["marks.csv"], "marked_packets"); marked != r.Totals.Marks {
			t.Errorf("%d marked, want %d", marked, r.Totals.Marks)
		}
		if n := sum(t, all["ports.csv"], "sent_bytes"); n != sum(t, all["totals.csv"], "sent_bytes") || n == 0 {
			t.Errorf("ports have sent %d bytes, in all %d", n, sum(t, all["totals.csv"], "sent_bytes"))
		}
		if n := len(all["links.csv"]); n != 6 {
			t.Errorf("%d links", n)
		}
		if n := len(all["pauses.csv"]); (n > 0) != (r.Totals.XOFFs > 0) {
			t.Errorf("%d pauses, and %d pause frames", n, r.Totals.XOFFs)
		}
		longest := uint64(0)
		for _, row := range all["queues.csv"] {
			n, _ := strconv.ParseUint(row["queued_bytes"], 10, 64)
			longest = max(longest, n)
		}
		if longest == 0 || longest > uint64(r.Queues[0].Max) || len(all["windows.csv"]) == 0 {
			t.Errorf("queues up to %d bytes, want %d; %d windows", longest, r.Queues[0].Max, len(all["windows.csv"]))
		}
		for _, row := range all["totals.csv"] {
			if u, err := strconv.ParseFloat(row["utilisation"], 64); err != nil || u < 0 || u > 1.001 {
				t.Fatalf("utilisation %s", row["utilisation"])
			}
		}
	}
}

// Tables are the same bytes on any number of cores.
func TestTablesRepeat(t *testing.T) {
	t.Parallel()
	write := func(cores int) (all []byte) {
		r := play(t, pausing, func(s *lab.Scenario) { s.Output.Record, s.Cores = true, cores })
		for _, table := range record.Tables() {
			var b bytes.Buffer
			if err := table.Write(&b, r); err != nil {
				t.Fatal(err)
			}
			all = append(all, b.Bytes()...)
		}
		return all
	}
	if first := write(1); !bytes.Equal(first, write(1)) || !bytes.Equal(first, write(3)) {
		t.Error("other bytes")
	}
}

// A result without a record has tables without rows, and no error.
func TestTablesWithoutRecord(t *testing.T) {
	t.Parallel()
	r := play(t, pausing, func(*lab.Scenario) {})
	all := tablesOf(t, r)
	if len(all["flows.csv"]) != 5 || all["flows.csv"][0]["timeouts"] != "" || len(all["pauses.csv"]) != 0 || len(all["queues.csv"]) == 0 {
		t.Errorf("%v", all["flows.csv"])
	}
	for _, table := range record.Tables() {
		if err := table.Write(full{}, r); !errors.Is(err, errFull) {
			t.Errorf("%s on a disk that is full: %v", table.Name, err)
		}
	}
}

// The manual has each column of each table.
func TestManualHasColumns(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/fabric-results.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range record.Tables() {
		_, text, ok := strings.Cut(string(b), "### `"+table.Name+"`")
		if text, _, _ = strings.Cut(text, "\n###"); !ok {
			t.Errorf("docs/fabric-results.md does not have %s", table.Name)
		}
		for _, c := range table.Columns {
			if strings.HasPrefix(c, "dropped_") && c != "dropped_packets" {
				c = "dropped_…"
			}
			if !strings.Contains(text, "`"+c+"`") {
				t.Errorf("docs/fabric-results.md, %s: there is no column %s", table.Name, c)
			}
		}
		if slices.Contains(table.Columns, "") {
			t.Errorf("%s: a column without a name", table.Name)
		}
	}
}

// The manual has each member of the summary.
func TestManualHasSummary(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/fabric-results.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "\n## summary.json")
	text, _, _ = strings.Cut(text, "\n## ")
	of := reflect.TypeFor[lab.Summary]()
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		if name == "" || !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/fabric-results.md, summary.json: there is no member %q", name)
		}
	}
}
