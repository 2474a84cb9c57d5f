package report

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/grid"
	"github.com/gosoftroce/rocev2/bench/internal/machine"
)

// two machines: the second lacks a cell of the first, and a peer.
func two() []Folder {
	a, b := example(), example()
	b.Env.CPU, b.Env.Vendor, b.Env.Model = "Other CPU", machine.Intel, "2"
	b.Rows = []cell.Row{
		row("iperf3/tcp", "iperf3 TCP", cell.Gbps, 40, 40, 40),
		row("ours/write/1MiB", "rocev2", cell.Gbps, 20, 20, 20),
		row("raw/4140/icrc", "raw UDP", cell.Gbps, 0, 60, 60),
		row("ours/write/8B/qps=1", "rocev2", cell.MsgRate, 4.5, 4.5, 4.5),
	}
	return []Folder{{"amd-99-1", a}, {"intel-99-2", b}}
}

func TestIndex(t *testing.T) {
	t.Parallel()
	got := Index(two())
	for _, line := range []string{
		"| [Example CPU](amd-99-1/report.md) | 4 × Example CPU, amd family 99 model 1, 2 cores, virtual | L1d 48 KiB, L2 2 MiB shared by 2 | linux 6.12, go1.26.8 | `0123456789ab` | 2026-01-02 | full |",
		"| what | against | to reach | Example CPU | Other CPU |",
		"| WRITE 1 MiB | the raw limit | ≥ 0.85 × | 0.833 × (0.5 … 1) **not met** | **failed** |",
		"| WRITE 1 MiB | iperf3 TCP, one stream | — | 1.5 × (1.19 … 1.5)  | 0.5 ×  |",
		"| WRITE 8 B, 1 QP | Mmsg/s | ≥ 6 or ≥ 4 | 4.25 (3 … 4.5) **not met** | 4.5 met |",
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("the index lacks %q", line)
		}
	}
	if strings.Contains(got, "READ 1 MiB") {
		t.Error("the index has a target that nobody measured")
	}
	if Index(nil) == "" {
		t.Error("no index without reports")
	}
}

func TestReadme(t *testing.T) {
	t.Parallel()
	got := Readme(two(), "bench/report")
	for _, line := range []string{
		"| [Example CPU, 4 processors](bench/report/amd-99-1/report.md) | [Other CPU, 4 processors](bench/report/intel-99-2/report.md) |",
		"| WRITEs of 1 MiB, 16 outstanding | raw UDP sockets with the CRC of this stack: what the protocol costs | 0.83 × (measured on 1 of 2) |",
		"|  | one TCP stream (iperf3) | 0.5 … 1.5 × |",
		"| WRITEs of 8 bytes | million messages a second | 4.2 … 4.5 |",
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("the figures lack %q:\n%s", line, got)
		}
	}
	file := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(file, []byte("before\n"+blockBegin+"old\n"+blockEnd+"after\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := UpdateReadme(file, "new\n"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if want := "before\n" + blockBegin + "new\n" + blockEnd + "after\n"; err != nil || string(b) != want {
		t.Errorf("%v, %q, want %q", err, b, want)
	}
	if err := os.WriteFile(file, []byte("nothing\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := UpdateReadme(file, "new\n"); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file without the marks: %v", err)
	}
}

// A size that is slower than a smaller one shows, whichever it is.
func TestDip(t *testing.T) {
	t.Parallel()
	rows := Rows{}
	for i, rate := range []float64{10, 12, 9, 20, 30, 30, 29.5} {
		r := row(grid.SizeCell("write", grid.FirstSize<<i), "rocev2", cell.Gbps, rate, rate, 2*rate)
		rows[r.Name] = &r
	}
	f := dip("write")(rows)
	if f.Value != 0.75 || f.Note != "16KiB beside 8KiB" || f.Why != "" {
		t.Errorf("%+v", f)
	}
	delete(rows, grid.SizeCell("write", 32<<10))
	if f := dip("write")(rows); f.Why != "not measured" {
		t.Errorf("a size is missing: %+v", f)
	}
}

// What the tree has is what the program writes.
func TestFilesAreOfTheReports(t *testing.T) {
	t.Parallel()
	const dir = "../../report"
	folders, err := Folders(dir)
	if err != nil || len(folders) == 0 {
		t.Fatalf("%v, %d reports", err, len(folders))
	}
	index, err := os.ReadFile(filepath.Join(dir, IndexFile))
	if err != nil {
		t.Fatal(err)
	}
	const again = "run: cd bench && go run ./cmd/rocebench -render report -readme ../README.md"
	if string(index) != Index(folders) {
		t.Errorf("the index is not of the reports; %s", again)
	}
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, after, err := around(readme)
	if err != nil {
		t.Fatal(err)
	}
	part := readme[len(before) : len(readme)-len(after)]
	if !bytes.Equal(part, []byte(Readme(folders, "bench/report"))) {
		t.Errorf("the figures of README.md are not of the reports; %s", again)
	}
	for _, f := range folders {
		if f.Name != f.Env.Folder() {
			t.Errorf("the report of folder %s is of %s", f.Name, f.Env.Folder())
		}
		if manual(filepath.Join(dir, f.Name)) != "../../README.md" {
			t.Errorf("%s: the way to the manual is %q", f.Name, manual(filepath.Join(dir, f.Name)))
		}
	}
}
