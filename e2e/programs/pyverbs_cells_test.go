//go:build linux

package programs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

var pyverbsNeeds = []guest.Need{
	{File: "/usr/bin/python3", Package: "python3"}, {File: "/usr/lib/python3/dist-packages/pyverbs", Package: "python3-pyverbs"},
	{File: "/usr/share/doc/rdma-core", Package: "rdma-core"},
}

// How many of the tests pass, and how many of these need huge pages. Of those
// that are for no vendor a kernel's rxe passes 97.
const (
	pyverbsPasses = 110
	pyverbsOfHuge = 2
)

// pyverbsCells are the tests of rdma-core.
func pyverbsCells() []*cell {
	return []*cell{{
		group: "python3-pyverbs", name: "run_tests.py", kinds: alone, needs: pyverbsNeeds, limit: 10 * time.Minute, prepare: hugePages,
		server: func(st *stage) []string {
			return []string{"sh", "-c", `cd "$1" && /usr/bin/python3 run_tests.py --dev "$2" --gid "$3" -v; test $? -le 1`, "sh",
				filepath.Join(st.dir, "pyverbs"), st.server.dev, strconv.Itoa(st.server.gid)}
		},
		check: countPyverbs,
	}}
}

const hugePagesFile = "/proc/sys/vm/nr_hugepages"

// hugePages has the machine keep some huge pages, if this user may.
func hugePages() (undo func()) {
	const enough = 8
	was, err := os.ReadFile(hugePagesFile)
	if n, numErr := strconv.Atoi(strings.TrimSpace(string(was))); err != nil || numErr != nil || n >= enough {
		return func() {}
	}
	_ = os.WriteFile(hugePagesFile, []byte(strconv.Itoa(enough)), 0) // there are fewer then
	return func() { _ = os.WriteFile(hugePagesFile, was, 0) }
}

var (
	pyverbsRan     = regexp.MustCompile(`(?m)^Ran (\d+) tests? in`)
	pyverbsResult  = regexp.MustCompile(`(?m)\.\.\. (ok|FAIL|ERROR|skipped)\b`)
	pyverbsSkipped = regexp.MustCompile(`(?m)\.\.\. skipped ['"](.*)['"]$`)
	pyverbsVendor  = regexp.MustCompile(`(?i)mlx5|efa|cuda|PCI device`)
)

const pyverbsNoHuge = "There are no huge pages of size 2M allocated"

// countPyverbs reads what the tests say of themselves.
func countPyverbs(st *stage) (string, error) {
	out := st.serverOut.Stderr
	n := map[string]int{}
	for _, m := range pyverbsResult.FindAllStringSubmatch(out, -1) {
		n[m[1]]++
	}
	vendors, reasons := 0, map[string]int{}
	for _, m := range pyverbsSkipped.FindAllStringSubmatch(out, -1) {
		if pyverbsVendor.MatchString(m[1]) {
			vendors++
		} else {
			reasons[m[1]]++
		}
	}
	note := fmt.Sprintf("%d pass, %d fail, %d skipped", n["ok"], n["FAIL"]+n["ERROR"], n["skipped"])
	ran := pyverbsRan.FindStringSubmatch(out)
	if ran == nil {
		return note, fmt.Errorf("the run has ended early: %s", note)
	}
	if ran[1] != strconv.Itoa(n["ok"]+n["FAIL"]+n["ERROR"]+n["skipped"]) {
		return note, fmt.Errorf("%s; but %s tests ran", note, ran[1])
	}
	st.details = fmt.Sprintf("Of %s tests %d are for the devices of vendors. Skipped of the others:\n\n%s", ran[1], vendors, listed(reasons))
	want := pyverbsPasses
	if reasons[pyverbsNoHuge] > 0 {
		want -= pyverbsOfHuge
	}
	if n["ok"] < want {
		return note, fmt.Errorf("%s; expected at least %d to pass", note, want)
	}
	return note, nil
}

// listed is a list of reasons, the most frequent one first.
func listed(reasons map[string]int) string {
	keys := slices.Sorted(maps.Keys(reasons))
	slices.SortStableFunc(keys, func(a, b string) int { return reasons[b] - reasons[a] })
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "- %d: %s\n", reasons[k], k)
	}
	return strings.TrimSpace(b.String())
}
