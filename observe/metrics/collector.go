package metrics

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gosoftroce/rocev2/verbs"
)

const prefix = "rocev2_"

// Config says what a Collector collects.
type Config struct {
	// Devices returns the devices, at each scrape.
	Devices func() []*verbs.Device

	// Version is that of the program, for rocev2_build_info.
	Version string

	// Gauges, if set, returns values of the program beside those of the
	// devices, at each scrape. Names have no prefix.
	Gauges func() []Gauge
}

// Gauge is a value of the program.
type Gauge struct {
	Name, Help string
	Label      string // its name; empty: it has none
	LabelValue string
	More       []Label // other labels
	Value      float64
	Total      bool // it is a counter, so that its name gets the suffix _total
}

// Label is a label with its value.
type Label struct{ Name, Value string }

// Collector is a prometheus.Collector. It keeps nothing between two scrapes.
type Collector struct {
	c Config

	known []*prometheus.Desc
	link  map[string]*prometheus.Desc
	qp    map[string]*prometheus.Desc
	drops *prometheus.Desc
	qps   *prometheus.Desc
	mrs   *prometheus.Desc
	up    *prometheus.Desc
	lost  *prometheus.Desc
	loop  *prometheus.Desc
	info  *prometheus.Desc
	took  *prometheus.Desc
	seals *prometheus.Desc
}

var device = []string{"device"}

// New makes a collector.
func New(c Config) *Collector {
	m := &Collector{c: c, link: map[string]*prometheus.Desc{}, qp: map[string]*prometheus.Desc{}}
	for _, k := range Known {
		m.known = append(m.known, desc(k.Name+"_total", k.Help+" (as in "+k.From+")", device...))
	}
	var ls verbs.LinkStats
	ls.Each(func(name string, _ uint64) {
		m.link[name] = desc("link_"+name+"_total", ls.Help(name), device...)
	})
	var qs verbs.QPStats
	qs.Each(func(name string, _ uint64) {
		if !strings.HasPrefix(name, "drop_") { // they are in drops_total
			m.qp[name] = desc("qp_"+name+"_total", qs.Help(name)+", all queue pairs together", device...)
		}
	})
	m.drops = desc("drops_total", "received packets that had no effect, by reason", "device", "reason")
	m.qps = desc("queue_pairs", "open queue pairs, by state", "device", "state")
	m.mrs = desc("memory_regions", "registered memory regions", device...)
	m.up = desc("port_up", "1 if the port is active, as in PORT_ACTIVE of ibv_devinfo", device...)
	m.lost = desc("events_dropped_total", "asynchronous events that no program read", device...)
	m.loop = desc("loopback_packets_total", "packets that passed inside the device", device...)
	m.seals = desc("sealing_total", "what sealing packets has counted, by the name of the counter in verbs.GuardCounters and verbs.SealCounters: packets, but for psp_rekeys", "device", "counter")
	m.info = desc("build_info", "1; the version of the program", "version")
	m.took = desc("scrape_seconds", "how long it took to read the counters of the devices")
	return m
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, labels, nil)
}

// Describe sends nothing: which metrics there are is known when they are
// collected (prometheus.Collector calls that unchecked).
func (m *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads the counters of every device.
func (m *Collector) Collect(ch chan<- prometheus.Metric) {
	begin := time.Now()
	for _, d := range m.c.Devices() {
		m.device(ch, d)
	}
	if m.c.Gauges != nil {
		for _, g := range m.c.Gauges() {
			m.gauge(ch, g)
		}
	}
	ch <- prometheus.MustNewConstMetric(m.info, prometheus.GaugeValue, 1, m.c.Version)
	ch <- prometheus.MustNewConstMetric(m.took, prometheus.GaugeValue, time.Since(begin).Seconds())
}

func (m *Collector) device(ch chan<- prometheus.Metric, d *verbs.Device) {
	name := d.Addr().String()
	s := sourceOf(d)
	count := func(desc *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(v), append([]string{name}, labels...)...)
	}
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, append([]string{name}, labels...)...)
	}
	for i, k := range Known {
		count(m.known[i], k.value(s))
	}
	s.stats.Link.Each(func(name string, v uint64) { count(m.link[name], v) })
	s.qps.Each(func(name string, v uint64) {
		if desc := m.qp[name]; desc != nil {
			count(desc, v)
		}
	})
	for reason, v := range s.stats.Drops {
		count(m.drops, v, reason)
	}
	s.sealing(func(name string, v uint64) { count(m.seals, v, name) })
	states := d.QPStates()
	for st := verbs.StateReset; st <= verbs.StateErr; st++ {
		gauge(m.qps, float64(states[st]), st.String())
	}
	gauge(m.mrs, float64(s.stats.MRs))
	up := 0.0
	if d.QueryPort().State == verbs.PortActive {
		up = 1
	}
	gauge(m.up, up)
	count(m.lost, s.stats.EventsDropped)
	count(m.loop, s.stats.LoopPackets)
}

func (m *Collector) gauge(ch chan<- prometheus.Metric, g Gauge) {
	name, kind := g.Name, prometheus.GaugeValue
	if g.Total {
		name, kind = name+"_total", prometheus.CounterValue
	}
	if g.Label == "" {
		ch <- prometheus.MustNewConstMetric(desc(name, g.Help), kind, g.Value)
		return
	}
	names, values := []string{g.Label}, []string{g.LabelValue}
	for _, l := range g.More {
		names, values = append(names, l.Name), append(values, strings.ToValidUTF8(l.Value, "?"))
	}
	ch <- prometheus.MustNewConstMetric(desc(name, g.Help, names...), kind, g.Value, values...)
}

// Handler serves the metrics, with those of the process and of Go's run time.
func Handler(c Config) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(New(c), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}
