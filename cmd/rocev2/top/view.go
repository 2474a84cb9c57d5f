package top

import (
	"fmt"
	"strings"
	"time"
)

// View is what is shown of tables, and how.
type View struct {
	shown    int // the index of the table
	sorting  [3]Sorting
	first    [3]int // the row at the top
	paused   bool
	help     bool
	interval time.Duration

	now, before *Sample
	tables      []*Table
	rows        int    // that the screen had for the table, for a page
	trouble     string // why the sample is old; "" if it is not
}

// NewView is a view of the table with a name, which is sorted by a column. An
// empty text stands for the queue pairs, and for the bytes sent.
func NewView(table, sort string, interval time.Duration) (*View, error) {
	v := &View{shown: 1, interval: interval}
	v.tables = Tables(&Sample{}, nil)
	found, known := table == "", map[string]bool{}
	for i, t := range v.tables {
		if t.Name == table {
			v.shown, found = i, true
		}
		v.sorting[i] = Sorting{Column: t.columnOf(columnTx.key)}
		if i == 0 {
			v.sorting[i] = Sorting{Column: 0, Up: true}
		}
	}
	if !found {
		return nil, fmt.Errorf("there is no table %q: there are devices, qps and programs", table)
	}
	for i, t := range v.tables {
		if c := t.columnOf(sort); c >= 0 {
			v.sorting[i] = Sorting{Column: c, Up: !t.columns[c].right}
			known[t.Name] = true
		}
	}
	if t := v.tables[v.shown]; sort != "" && !known[t.Name] {
		var names []string
		for _, c := range t.columns {
			names = append(names, c.key)
		}
		return nil, fmt.Errorf("the table %s has no column %q: it has %s", t.Name, sort, strings.Join(names, ", "))
	}
	return v, nil
}

// Take shows a sample.
func (v *View) Take(s *Sample) {
	v.trouble = ""
	if v.paused && v.now != nil {
		return
	}
	v.now, v.before = s, v.now
	v.tables = Tables(v.now, v.before)
	for i, t := range v.tables {
		t.sort(v.sorting[i])
	}
}

// Fail says that no sample could be taken. What was there stays.
func (v *View) Fail(err error) { v.trouble = shown(err.Error(), 400) }

// Key is a key that was pressed.
type Key int

// Keys that are no characters; the others are their characters.
const (
	KeyUp Key = -1 - iota
	KeyDown
	KeyLeft
	KeyRight
	KeyPageUp
	KeyPageDown
	KeyHome
	KeyEnd
	KeyTab
	KeyNone
)

// Press does what a key is for. It returns true where that is to end.
func (v *View) Press(k Key) (quit bool) {
	s, first := &v.sorting[v.shown], &v.first[v.shown]
	columns := len(v.tables[v.shown].columns)
	switch k {
	case 'q', 'Q', 3, 4: // interrupt and end of input, where they come as keys
		return true
	case '?', 'H':
		v.help = !v.help
	case ' ', 'p':
		v.paused = !v.paused
	case KeyTab, '\t':
		v.shown = (v.shown + 1) % len(v.tables)
	case '1', '2', '3':
		v.shown = int(k - '1')
	case KeyLeft, 'h', '<':
		s.Column = (s.Column + columns - 1) % columns
	case KeyRight, 'l', '>':
		s.Column = (s.Column + 1) % columns
	case 'r', 'R':
		s.Up = !s.Up
	case KeyUp, 'k':
		*first--
	case KeyDown, 'j':
		*first++
	case KeyPageUp:
		*first -= max(v.rows, 1)
	case KeyPageDown:
		*first += max(v.rows, 1)
	case KeyHome, 'g':
		*first = 0
	case KeyEnd, 'G':
		*first = len(v.tables[v.shown].rows)
	case '+', '=':
		v.interval = min(2*v.interval, maxInterval)
	case '-':
		v.interval = max(v.interval/2, minInterval)
	}
	v.tables[v.shown].sort(v.sorting[v.shown])
	return false
}

// Interval is the time between two samples, which keys change.
func (v *View) Interval() time.Duration { return v.interval }

// The bounds of the interval.
const (
	minInterval = 100 * time.Millisecond
	maxInterval = time.Hour
)

// Codes that are put into lines. They take no room.
const (
	reverse = "\x1b[7m"
	bold    = "\x1b[1m"
	normal  = "\x1b[0m"
)

const helpText = `
  q           quit
  Tab, 1 2 3  another table: devices, queue pairs, programs
  left right  sort by another column         (also h l, < >)
  r           sort the other way round
  up down     scroll; Page Up, Page Down, Home, End   (also k j, g G)
  space, p    pause, and go on
  + -         longer, shorter interval
  ?           this help, and back

  TX RX: sent and received. AGAIN: packets sent again. DROP: packets that had
  no effect. FLIGHT: bytes that are not acknowledged. RTT: round trip time.
  Bytes in units of 1024, packets in units of 1000.`

// Lines are the lines of a screen: none is wider than the screen, codes aside.
func (v *View) Lines(width, height int) []string {
	lines := make([]string, 0, max(height, 0))
	add := func(s string) { lines = append(lines, s) }
	add(bold + fit(v.title(), width) + normal)
	if v.trouble != "" {
		add(reverse + fit(v.trouble, width) + normal)
	} else if v.now != nil && v.now.Notice != "" {
		add(fit(shown(v.now.Notice, 400), width))
	}
	if v.help {
		for _, l := range strings.Split(helpText, "\n") {
			add(fit(l, width))
		}
		return lines[:max(min(len(lines), height), 0)]
	}
	add(fit(v.sums(), width))
	add(v.tabs(width))
	t, sorted := v.tables[v.shown], v.sorting[v.shown].Column
	columns := t.visible(width, sorted)
	add(t.header(columns, sorted))
	v.rows = max(height-len(lines)-1, 0)
	first := &v.first[v.shown]
	*first = max(min(*first, len(t.rows)-v.rows), 0)
	for _, row := range t.rows[*first:min(*first+v.rows, len(t.rows))] {
		add(t.line(row, columns))
	}
	for len(lines) < height-1 {
		add("")
	}
	add(v.footer(width))
	return lines[:max(min(len(lines), height), 0)]
}

func (v *View) title() string {
	if v.now == nil {
		return "rocev2 top: waiting for the first values"
	}
	s := shown(v.now.Source, 200)
	if v.now.State != "" {
		s += ", " + shown(v.now.State, 40)
	}
	s += ", " + v.now.Time.Local().Format("15:04:05")
	if v.paused {
		s += ", paused"
	}
	return s
}

// sums adds the rates of the devices up.
func (v *View) sums() string {
	t := v.tables[0]
	sum := map[string]float64{}
	for _, row := range t.rows {
		for i, c := range t.columns {
			sum[c.key] += max(row[i].value, 0)
		}
	}
	return fmt.Sprintf("sent %sB/s %s pkt/s, received %sB/s %s pkt/s, again %s/s, dropped %s/s",
		size(sum[columnTx.key]), count(sum[columnTxPkts.key]), size(sum[columnRx.key]), count(sum[columnRxPkts.key]), count(sum[columnAgain.key]), count(sum[columnDropped.key]))
}

// tabs names the tables, with the one that is shown marked.
func (v *View) tabs(width int) string {
	var b strings.Builder
	for i, t := range v.tables {
		name := fmt.Sprintf(" %d %s %d ", i+1, t.Title, t.total)
		if len(t.rows) < t.total {
			name = fmt.Sprintf(" %d %s %d of %d ", i+1, t.Title, len(t.rows), t.total)
		}
		if width -= len(name); width < 0 {
			break
		}
		if i == v.shown {
			name = reverse + name + normal
		}
		b.WriteString(name)
	}
	return b.String()
}

func (v *View) footer(width int) string {
	t, s := v.tables[v.shown], v.sorting[v.shown]
	way := "largest first"
	if s.Up {
		way = "smallest first"
	}
	return fit(fmt.Sprintf("by %s, %s, every %v   q quit  Tab table  arrows sort, scroll  ? help", t.columns[s.Column].title, way, v.interval), width)
}
