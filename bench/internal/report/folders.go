package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Names of the files of a report, and of the index of a directory of reports.
const (
	ResultsFile = "results.json"
	ReportFile  = "report.md"
	IndexFile   = "README.md"
)

// Read reads the results of a report's directory.
func Read(dir string) (*Report, error) {
	file, err := os.Open(filepath.Join(dir, ResultsFile))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r, err := ReadJSON(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name(), err)
	}
	if len(r.Rows) == 0 {
		return nil, fmt.Errorf("%s has no rows", file.Name())
	}
	return r, nil
}

// Write writes the report of a directory, with its plots.
func (r *Report) Write(dir string) error {
	plots, err := r.Plots(dir)
	if err != nil {
		return err
	}
	r.Manual = manual(dir)
	return create(filepath.Join(dir, ReportFile), func(f *os.File) error { return r.Markdown(f, plots) })
}

// WriteResults writes what Read reads.
func (r *Report) WriteResults(dir string) error {
	return create(filepath.Join(dir, ResultsFile), func(f *os.File) error { return r.WriteJSON(f) })
}

func create(name string, write func(*os.File) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// manual finds the README.md of the measuring program above a directory, that
// is, beside its go.mod.
func manual(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	up := ""
	for {
		parent := filepath.Dir(abs)
		if parent == abs {
			return ""
		}
		abs, up = parent, up+"../"
		if _, err := os.Stat(filepath.Join(abs, "go.mod")); err == nil {
			return up + IndexFile
		}
	}
}

// Folder is a report of a processor model.
type Folder struct {
	Name string // of the directory
	*Report
}

// Folders reads all reports below a directory, by name.
func Folders(dir string) ([]Folder, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []Folder
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		r, err := Read(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		out = append(out, Folder{e.Name(), r})
	}
	return out, nil
}

// Index is the text that leads to the reports: the machines, and what of the
// targets was reached on each.
func Index(folders []Folder) string {
	var b strings.Builder
	b.WriteString("# Reports by processor model\n\nWritten by `rocebench`. What the figures mean and how to repeat them: [bench/README.md](../README.md).\n" +
		"Compare ratios: each is of one run on one machine. Figures of two columns are of different commits, too.\n\n" +
		"| report | processor | caches | kernel, Go | commit | when | grid |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, f := range folders {
		e := &f.Env
		caches := e.Cached()
		if caches == "" {
			caches = "not recorded"
		}
		fmt.Fprintf(&b, "| [%s](%s/%s) | %s | %s | %s, %s | `%s` | %s | %s |\n", e.Title(), f.Name, ReportFile, e.machine(), caches,
			e.Kernel, e.Go, e.Commit, e.Time.Format("2006-01-02"), e.Grid)
	}
	if len(folders) == 0 {
		return b.String()
	}
	b.WriteString("\n## Targets\n\n| what | against | to reach |")
	rule := "\n| --- | --- | --- |"
	var verdicts [][]Verdict
	for _, f := range folders {
		fmt.Fprintf(&b, " %s |", f.Env.Title())
		rule += " --- |"
		verdicts = append(verdicts, f.Verdicts())
	}
	b.WriteString(rule + "\n")
	for i := range verdicts[0] {
		line, measured := lineOf(verdicts, i)
		if measured {
			b.WriteString(line)
		}
	}
	for _, f := range folders {
		plot := filepath.Join(f.Name, "throughput.svg")
		fmt.Fprintf(&b, "\n![1 MiB messages between two processes, %s](%s)\n", f.Env.Title(), filepath.ToSlash(plot))
	}
	return b.String()
}

// lineOf is the line of a target over all machines, and whether any of them
// measured it.
func lineOf(verdicts [][]Verdict, i int) (line string, measured bool) {
	v := &verdicts[0][i]
	var bounds []string
	var cells strings.Builder
	for m := range verdicts {
		of := &verdicts[m][i]
		if b := of.bound(); !slices.Contains(bounds, b) {
			bounds = append(bounds, b)
		}
		figure, met := of.Result()
		switch {
		case of.Why != "" && strings.Contains(of.Why, "failed"):
			fmt.Fprintf(&cells, " **failed** |")
		case of.Why != "":
			fmt.Fprintf(&cells, " — |")
		default:
			measured = true
			fmt.Fprintf(&cells, " %s %s |", figure, met)
		}
	}
	return fmt.Sprintf("| %s | %s | %s |%s\n", v.What, v.Against, strings.Join(bounds, " or "), cells.String()), measured
}
