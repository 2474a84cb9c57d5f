package top

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
)

var begin = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// busy is a sample after some seconds.
func busy(seconds int) *Sample {
	n := uint64(seconds)
	s := &Sample{Time: begin.Add(time.Duration(seconds) * time.Second), Source: "rocev2d 1 on host", State: "ready", Begin: "1", QPsTotal: 3}
	s.Devices = []Device{{Address: "192.0.2.1", State: "PORT_ACTIVE", QPs: 3, traffic: traffic{n << 20, n << 10, 1000 * n, 10 * n}, Again: 5 * n, InFlight: 4096, RTT: 12}}
	for i := range uint64(3) {
		s.QPs = append(s.QPs, QP{Device: "192.0.2.1", Type: "RC", State: "RTS", QPN: uint32(17 + i), PeerQPN: 5, Peer: "192.0.2.2",
			traffic: traffic{TxBytes: n << (10 * i), RxBytes: 2048 * n}})
	}
	s.Programs = []Program{{PID: 4711, Command: "ib_write_bw", Device: "192.0.2.1", Since: begin, QPs: 3, traffic: traffic{TxBytes: n << 30}, Peers: []string{"192.0.2.2"}}}
	return s
}

func newView(t testing.TB, table, sort string) *View {
	t.Helper()
	v, err := NewView(table, sort, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// screen is what a view shows, without the marks.
func screen(v *View, width, height int) string {
	s := strings.Join(v.Lines(width, height), "\n")
	for _, code := range []string{reverse, bold, normal} {
		s = strings.ReplaceAll(s, code, "")
	}
	return s
}

func TestView(t *testing.T) {
	t.Parallel()
	v := newView(t, "", "")
	if !strings.Contains(screen(v, 80, 24), "waiting for the first values") {
		t.Error(screen(v, 80, 24))
	}
	v.Take(busy(1))
	v.Take(busy(3))
	at := busy(3).Time.Local().Format("15:04:05")
	want := "rocev2d 1 on host, ready, " + at + `
sent 1.0MB/s 1.0K pkt/s, received 1.0KB/s 10 pkt/s, again 5/s, dropped 0/s
 1 Devices 1  2 Queue pairs 3  3 Programs 1 ` + `
QPN      TYPE STATE PEER             TX B/s  RX B/s AGAIN/s    RTT FLIGHT DROP/s
0x000013 RC   RTS   192.0.2.2          1.0M    2.0K       0      -      0      0
0x000012 RC   RTS   192.0.2.2          1.0K    2.0K       0      -      0      0
0x000011 RC   RTS   192.0.2.2             1    2.0K       0      -      0      0

by TX B/s, largest first, every 1s   q quit  Tab table  arrows sort, scroll  ? h`
	if got := screen(v, 80, 9); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	v.Press('r')
	if got := screen(v, 80, 24); strings.Index(got, "0x000011") > strings.Index(got, "0x000013") || !strings.Contains(got, "smallest first") {
		t.Errorf("the other way round:\n%s", got)
	}
	v.Press(KeyTab)
	if got := screen(v, 80, 24); !strings.Contains(got, "   4711 ib_write_bw") || !strings.Contains(got, "1.0G") {
		t.Errorf("programs:\n%s", got)
	}
	v.Press('1')
	if got := screen(v, 80, 24); !strings.Contains(got, "192.0.2.1       ACTIVE") {
		t.Errorf("devices:\n%s", got)
	}
	if v.Press('x') || !v.Press('q') {
		t.Error("q is to quit, and x is not")
	}
}

// The column that the table is sorted by is always there, on a screen of 80
// columns, too, and addresses of IPv6 have room.
func TestSortedColumnIsShown(t *testing.T) {
	t.Parallel()
	v := newView(t, "qps", "queued")
	s := busy(1)
	s.QPs[0].Peer = "fd12:3456:789a:bcde:f012:3456:789a:bcde"
	v.Take(s)
	for range v.tables[1].columns {
		title := v.tables[1].columns[v.sorting[1].Column].title
		header := strings.Split(screen(v, 80, 24), "\n")[3]
		if !strings.Contains(" "+header+" ", " "+title+" ") {
			t.Errorf("no %s in %q", title, header)
		}
		v.Press(KeyRight)
	}
	if !strings.Contains(screen(v, 80, 24), s.QPs[0].Peer) {
		t.Errorf("the address is cut:\n%s", screen(v, 80, 24))
	}
}

// Rates are of what has passed between two samples. There are none without a
// sample before, for what is new, and after the daemon has begun anew.
func TestRates(t *testing.T) {
	t.Parallel()
	rate := func(now, before *Sample) string {
		table := Tables(now, before)[0]
		return table.rows[0][table.columnOf("TX B/s")].text
	}
	again := busy(2)
	again.Begin = "2"
	other := busy(1)
	other.Devices[0].Address = "192.0.2.9"
	fewer := busy(2)
	fewer.Devices[0].TxBytes = 7
	for name, c := range map[string]struct {
		now, before *Sample
		want        string
	}{
		"usual": {busy(2), busy(1), "1.0M"}, "first": {busy(2), nil, "-"}, "restarted": {again, busy(1), "-"}, "new": {busy(2), other, "-"},
		"fewer": {fewer, busy(1), "0"}, "the same time": {busy(1), busy(1), "-"}, "the clock was set back": {busy(1), busy(2), "-"},
	} {
		if got := rate(c.now, c.before); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Whatever a program calls itself, a daemon answers and keys do, lines have no
// code but those of the view, and are as wide as the screen at most.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	evil := "\x1b[2J\x1b]0;x\a\u202e\u0301\u200b\r\n\x00\xff名前" + strings.Repeat("é", 300)
	s := busy(2)
	s.Source, s.State, s.Notice = evil, evil, evil
	s.Devices[0].Interface, s.Devices[0].State, s.Devices[0].Address = evil, evil, evil
	s.QPs[0].Peer, s.QPs[0].Type, s.QPs[0].State = evil, evil, evil
	s.Programs[0].Command, s.Programs[0].Peers = evil, []string{evil, evil}
	random := rand.New(rand.NewPCG(1, 2))
	v := newView(t, "", "")
	keys := []Key{KeyUp, KeyDown, KeyLeft, KeyRight, KeyPageUp, KeyPageDown, KeyHome, KeyEnd, KeyTab, 'r', '?', ' ', '1', '2', '3', '+', '-'}
	for i := range 3000 {
		switch random.IntN(8) {
		case 0:
			v.Take(s)
		case 1:
			v.Take(&Sample{Time: begin.Add(time.Duration(i))})
		case 2:
			v.Fail(errors.New(evil))
		default:
			v.Press(keys[random.IntN(len(keys))])
		}
		width, height := random.IntN(200), random.IntN(60)
		if lines := v.Lines(width, height); len(lines) > height {
			t.Fatalf("%d lines on a screen of %d", len(lines), height)
		}
		for _, l := range strings.Split(screen(v, width, height), "\n") {
			if textWidth(l) > width {
				t.Fatalf("%d columns of %d: %q", textWidth(l), width, l)
			}
			if bad := strings.IndexFunc(l, func(r rune) bool { return !unicode.IsPrint(r) || unicode.Is(unicode.M, r) }); bad >= 0 {
				t.Fatalf("%q", l)
			}
		}
	}
}

// Of very many rows a screen shows those where it is scrolled to.
func TestScroll(t *testing.T) {
	t.Parallel()
	s := busy(1)
	for i := range 1000 {
		s.QPs = append(s.QPs, QP{QPN: uint32(1000 + i), traffic: traffic{TxBytes: 1}})
	}
	s.QPsTotal = 30000
	v := newView(t, "qps", "qpn")
	v.Take(s)
	if got := screen(v, 80, 24); !strings.Contains(got, "2 Queue pairs 1003 of 30000") || !strings.Contains(got, "0x000011") {
		t.Error(got)
	}
	v.Press(KeyEnd)
	if got := screen(v, 80, 24); !strings.Contains(got, fmt.Sprintf("0x%06x", 1999)) || strings.Contains(got, "0x000011") {
		t.Error(got)
	}
	v.Press(KeyPageUp)
	if got := screen(v, 80, 24); strings.Contains(got, fmt.Sprintf("0x%06x", 1999)) {
		t.Error(got)
	}
	s = busy(2) // there are few now
	v.Take(s)
	if got := screen(v, 80, 24); !strings.Contains(got, "0x000011") {
		t.Error(got)
	}
}

// While it is paused a view stays, and what went wrong is told all the same.
func TestPause(t *testing.T) {
	t.Parallel()
	v := newView(t, "", "")
	v.Take(busy(1))
	before := screen(v, 80, 24)
	v.Press(' ')
	v.Take(busy(9))
	if got := screen(v, 80, 24); !strings.HasPrefix(got, strings.SplitN(before, "\n", 2)[0]+", paused\n") {
		t.Error(got)
	}
	v.Fail(errors.New("it is gone"))
	if got := screen(v, 80, 24); !strings.Contains(got, "\nit is gone\n") {
		t.Error(got)
	}
	v.Press(' ')
	v.Take(busy(10))
	if got := screen(v, 80, 24); strings.Contains(got, "gone") || strings.Contains(got, "paused") {
		t.Error(got)
	}
}

func TestNewViewRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{{"nonsense", "", "there are devices, qps and programs"}, {"", "nonsense", "it has qpn, type"}, {"programs", "qpn", "no column"}} {
		if _, err := NewView(c[0], c[1], time.Second); err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%q: %v", c, err)
		}
	}
}

func TestShortNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[float64]string{-1: "-", 0: "0", 1: "1", 1.25: "1.2", 999: "999", 999.6: "1.0K", 1000: "1.0K", 9949: "9.9K", 9951: "10K", 999499: "999K",
		999500: "1.0M", 1e18: "1.0E", 1.8e19: "18E"} {
		if got := short(n, 1000); got != want {
			t.Errorf("%v is %s, want %s", n, got, want)
		}
	}
}

// Keys that come in parts are whole, and what is no key is none.
func TestKeys(t *testing.T) {
	t.Parallel()
	var r keyReader
	var got []Key
	for _, c := range []byte("q\x1b[A\x1bOB\x1b[5~\x1b[1;5C\x1b[99~\x1b\x1b[Hx\xc3\xa9\x1bzq") {
		if k := r.next(c); k != KeyNone {
			got = append(got, k)
		}
	}
	if want := []Key{'q', KeyUp, KeyDown, KeyPageUp, KeyRight, KeyHome, 'x', 'q'}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
