package top

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Table is rows that can be sorted.
type Table struct {
	Name    string // devices
	Title   string
	columns []column
	rows    [][]cell
	total   int // rows that there are; only the first ones may be here
}

// column describes what is in one. The first ones matter most: a narrow screen
// has no others.
type column struct {
	key   string // in JSON, and of --sort
	title string
	width int
	right bool // numbers are at the right
}

// cell is a value, and how it is shown.
type cell struct {
	text  string
	value float64 // of numbers
	name  string  // of texts
}

func textCell(s string) cell {
	s = shown(s, mostText)
	return cell{text: cmp.Or(s, "-"), name: s}
}

func numberCell(n float64, form func(float64) string) cell { return cell{text: form(n), value: n} }

func plain(n float64) string { return fmt.Sprintf("%.0f", n) }
func size(n float64) string  { return short(n, 1024) }
func count(n float64) string { return short(n, 1000) }

// The columns of rates, which several tables have.
var (
	columnTx      = column{"tx_bytes_per_second", "TX B/s", 7, true}
	columnRx      = column{"rx_bytes_per_second", "RX B/s", 7, true}
	columnTxPkts  = column{"tx_packets_per_second", "TX p/s", 7, true}
	columnRxPkts  = column{"rx_packets_per_second", "RX p/s", 7, true}
	columnAgain   = column{"retransmits_per_second", "AGAIN/s", 7, true}
	columnDropped = column{"drops_per_second", "DROP/s", 6, true}
	columnFlight  = column{"in_flight_bytes", "FLIGHT", 6, true}
	columnRTT     = column{"rtt_us", "RTT", 6, true}
	columnDevice  = column{"device", "DEVICE", 15, false}
)

// Tables are the tables of a sample. Rates are those since before, which is nil
// for the first one: then there are none.
func Tables(now, before *Sample) []*Table {
	if before != nil && (before.Begin != now.Begin || !now.Time.After(before.Time)) {
		before = nil
	}
	r := rater{}
	if before != nil {
		r.seconds = now.Time.Sub(before.Time).Seconds()
	} else {
		before = &Sample{}
	}
	return []*Table{devicesTable(&r, now, before), qpsTable(&r, now, before), programsTable(&r, now, before)}
}

// rater makes rates of two counters.
type rater struct{ seconds float64 }

// of is a rate: none where there is no time between, or the counter is new, and
// 0 where it has begun anew.
func (r *rater) of(now, before uint64, known bool) float64 {
	switch {
	case r.seconds <= 0 || !known:
		return -1
	case now < before:
		return 0
	}
	return float64(now-before) / r.seconds
}

func (r *rater) cells(now, before *traffic, known bool) []cell {
	return []cell{
		numberCell(r.of(now.TxBytes, before.TxBytes, known), size), numberCell(r.of(now.RxBytes, before.RxBytes, known), size),
		numberCell(r.of(now.TxPackets, before.TxPackets, known), count), numberCell(r.of(now.RxPackets, before.RxPackets, known), count),
	}
}

// byKey returns the entries of a list by their keys.
func byKey[T any, K comparable](list []T, key func(*T) K) map[K]*T {
	m := make(map[K]*T, len(list))
	for i := range list {
		m[key(&list[i])] = &list[i]
	}
	return m
}

// lookup returns what was there before, or nothing and false.
func lookup[T any, K comparable](m map[K]*T, k K) (*T, bool) {
	if v := m[k]; v != nil {
		return v, true
	}
	return new(T), false
}

func devicesTable(r *rater, now, before *Sample) *Table {
	t := &Table{Name: "devices", Title: "Devices", total: len(now.Devices), columns: []column{
		columnDevice, {"state", "STATE", 6, false}, {"qps", "QPS", 5, true}, columnTx, columnRx, columnTxPkts, columnRxPkts, columnAgain, columnDropped,
		columnFlight, columnRTT, {"mrs", "MRS", 5, true}, {"interface", "INTERFACE", 10, false},
		{"key_hosts", "KEYS", 5, true}, {"key_hosts_without", "NOKEYS", 6, true}, {"keys_age_seconds", "KEYAGE", 6, true}}}
	key := func(d *Device) string { return d.Address }
	old := byKey(before.Devices, key)
	for i := range now.Devices {
		d := &now.Devices[i]
		o, known := lookup(old, key(d))
		row := []cell{textCell(d.Address), textCell(strings.TrimPrefix(d.State, "PORT_")), numberCell(float64(d.QPs), plain)}
		row = append(row, r.cells(&d.traffic, &o.traffic, known)...)
		row = append(row, numberCell(r.of(d.Again, o.Again, known), count), numberCell(r.of(d.Dropped, o.Dropped, known), count),
			numberCell(float64(d.InFlight), size), numberCell(float64(d.RTT), micros), numberCell(float64(d.MRs), plain), textCell(d.Interface))
		row = append(row, d.Keys.cells(now.Time)...)
		t.rows = append(t.rows, row)
	}
	return t
}

// cells say with how many hosts there are keys, with how many not, and since
// when.
func (k *Keys) cells(now time.Time) []cell {
	none := cell{text: "-", value: -1}
	if k == nil {
		return []cell{none, none, none}
	}
	since := none
	if !k.Since.IsZero() {
		since = numberCell(now.Sub(k.Since).Seconds(), age)
	}
	return []cell{numberCell(float64(k.Hosts), plain), numberCell(float64(k.Without), plain), since}
}

func qpsTable(r *rater, now, before *Sample) *Table {
	t := &Table{Name: "qps", Title: "Queue pairs", total: now.QPsTotal, columns: []column{
		{"qpn", "QPN", 8, false}, {"type", "TYPE", 4, false}, {"state", "STATE", 5, false}, {"peer", "PEER", 15, false}, columnTx, columnRx, columnAgain,
		columnRTT, columnFlight, columnDropped, {"peer_qpn", "PEERQPN", 8, false}, columnTxPkts, columnRxPkts, {"queued", "QUEUED", 6, true}, columnDevice}}
	type qpKey struct {
		device string
		qpn    uint32
	}
	key := func(q *QP) qpKey { return qpKey{q.Device, q.QPN} }
	old := byKey(before.QPs, key)
	for i := range now.QPs {
		q := &now.QPs[i]
		o, known := lookup(old, key(q))
		rates := r.cells(&q.traffic, &o.traffic, known)
		row := []cell{textCell(fmt.Sprintf("0x%06x", q.QPN)), textCell(q.Type), textCell(q.State), textCell(q.Peer), rates[0], rates[1],
			numberCell(r.of(q.Again, o.Again, known), count), numberCell(float64(q.RTT), micros), numberCell(float64(q.InFlight), size),
			numberCell(r.of(q.Dropped, o.Dropped, known), count), textCell(peerQPN(q)), rates[2], rates[3], numberCell(float64(q.Queued), plain), textCell(q.Device)}
		t.rows = append(t.rows, row)
	}
	return t
}

func peerQPN(q *QP) string {
	if q.PeerQPN == 0 {
		return ""
	}
	return fmt.Sprintf("0x%06x", q.PeerQPN)
}

func programsTable(r *rater, now, before *Sample) *Table {
	t := &Table{Name: "programs", Title: "Programs", total: len(now.Programs), columns: []column{
		{"pid", "PID", 7, true}, {"command", "COMMAND", 16, false}, {"user", "USER", 5, true}, {"qps", "QPS", 5, true}, {"connections", "CONNS", 5, true},
		columnTx, columnRx, columnTxPkts, columnRxPkts, {"tx_bytes", "SENT", 6, true}, {"rx_bytes", "RECVD", 6, true}, columnDevice,
		{"age_seconds", "AGE", 6, true}, {"peers", "PEERS", 30, false}}}
	type programKey struct {
		device string
		slot   int
		since  int64
	}
	key := func(p *Program) programKey { return programKey{p.Device, p.Slot, p.Since.UnixNano()} }
	old := byKey(before.Programs, key)
	for i := range now.Programs {
		p := &now.Programs[i]
		o, known := lookup(old, key(p))
		row := []cell{numberCell(float64(p.PID), plain), textCell(p.Command), numberCell(float64(p.User), plain), numberCell(float64(p.QPs), plain),
			numberCell(float64(p.Connections), plain)}
		row = append(row, r.cells(&p.traffic, &o.traffic, known)...)
		row = append(row, numberCell(float64(p.TxBytes), size), numberCell(float64(p.RxBytes), size), textCell(p.Device),
			numberCell(now.Time.Sub(p.Since).Seconds(), age), textCell(strings.Join(p.Peers, " ")))
		t.rows = append(t.rows, row)
	}
	return t
}

func age(seconds float64) string {
	d := time.Duration(max(seconds, 0) * float64(time.Second))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 100*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Sorting is by which column a table is sorted, and which way.
type Sorting struct {
	Column int
	Up     bool // the smallest first
}

// sort sorts the rows. Those that are alike stay as they are.
func (t *Table) sort(s Sorting) {
	if s.Column < 0 || s.Column >= len(t.columns) {
		return
	}
	slices.SortStableFunc(t.rows, func(a, b []cell) int {
		x, y := a[s.Column], b[s.Column]
		c := cmp.Or(cmp.Compare(x.value, y.value), strings.Compare(x.name, y.name))
		if !s.Up {
			c = -c
		}
		return c
	})
}

// columnOf returns the column of a name: that of JSON, or the title.
func (t *Table) columnOf(name string) int {
	return slices.IndexFunc(t.columns, func(c column) bool {
		return strings.EqualFold(c.key, name) || strings.EqualFold(c.title, name)
	})
}

// MarshalJSON writes the rows: numbers as they are, without units; those that
// are not known are null.
func (t *Table) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, row := range t.rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('{')
		for k, c := range t.columns {
			var v any = row[k].name
			if c.right && row[k].value < 0 {
				v = nil
			} else if c.right {
				v = row[k].value
			}
			text, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			if k > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%q:%s", c.key, text)
		}
		b.WriteByte('}')
	}
	b.WriteByte(']')
	return b.Bytes(), nil
}
