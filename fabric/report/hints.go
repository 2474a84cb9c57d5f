package report

import (
	"fmt"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/fabric/network"
)

// why says what the reasons of drops mean, and what helps.
var why = map[network.Drop]string{
	network.EgressFull:   "the queue of the port that they were to leave by was full: marks that begin earlier, or a larger queue_max, keep it shorter",
	network.IngressFull:  "the switch had no room for what came in by their port: its buffer is shared, and others have filled it",
	network.HeadroomFull: "a class without loss had no headroom left after its pause: the cable is longer, or the buffer smaller, than the headroom is for",
	network.HopLimit:     "they went round in a circle: tables of switches do not agree, as while they follow a failure",
	network.NoRoute:      "no way to their host was left",
	network.Misrouted:    "they came to another host",
	network.TooLong:      "they are longer than the network takes",
	network.CableLoss:    "cables lose packets at random here (loss)",
	network.CableDown:    "a cable was down, and the tables had not followed yet (converge); or one direction of it was, or a host had stopped, which no table follows",
	network.Watchdog:     "the watchdog has ended pauses that went on for too long",
}

// Hints returns what is worth looking at in a result, in words, the gravest
// first.
func Hints(r *lab.Result) (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	s := r.Summary()
	if r.Still > 0 {
		add("Deadlock: since %v nothing has arrived, and packets wait for ports that pause each other. Routes with up_down, or a watchdog, end that.", r.Still)
	}
	if s.Failed > 0 {
		add("%d flows have failed: their queue pairs have used up all retries.", s.Failed)
	}
	if len(r.Unfinished) > 0 {
		u := &r.Unfinished[0]
		add("%d flows have not completed. Of the first, h%d to h%d: %s.", len(r.Unfinished), u.Src, u.Dst, u.Where)
	}
	if r.GoBack != "" {
		add("Window: %s.", r.GoBack)
	}
	for reason, n := range r.Totals.Drops {
		if n > 0 {
			add("%d packets were dropped (%s): %s.%s", n, network.Drop(reason), why[network.Drop(reason)], mostly(r, reason))
		}
	}
	if s.Timeouts > 0 {
		add("Local ACK timeouts: %d. Each is a loss that nothing else has shown, and its flow stood still for that long: adapter.timeout is code %d.", s.Timeouts, orDefault(r.Scenario.Adapter.Timeout, 14))
	}
	if s.TCP != nil && s.TCP.Timeouts > 0 {
		add("TCP has waited for %d timeouts, of 1s for a SYN, and of tcp.min_rto or more else: losses that no three segments after them have shown.", s.TCP.Timeouts)
	}
	if s.Probes > 0 {
		add("Queue pairs have asked silent peers %d times (probes). %d packets went again without need.", s.Probes, r.Stats.SpuriousRetransmits)
	}
	list = append(list, pauseHints(r)...)
	list = append(list, loadHints(r, &s)...)
	if s.Rate > 0 && s.Jain > 0 && s.Jain < .95 {
		add("The flows without an end do not share fairly: Jain's index is %.2f, where 1 is equal shares.", s.Jain)
	}
	if sum := s.Slowdown; sum.N > 0 && sum.P99 > 2 {
		add("Flows took %.2f times as long as alone in the median, and one in a hundred %.2f times or more.", sum.P50, sum.P99)
	}
	if len(list) == 0 {
		add("Nothing: no packet was dropped, no port paused, no cable full, and no flow took more than twice as long as alone.")
	}
	return list
}

func orDefault(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}

// mostly says where most packets were dropped for a reason.
func mostly(r *lab.Result, reason int) string {
	var most *lab.Port
	for i := range r.Ports {
		if p := &r.Ports[i]; p.Drops[reason] > 0 && (most == nil || p.Drops[reason] > most.Drops[reason]) {
			most = p
		}
	}
	if most == nil {
		return ""
	}
	return fmt.Sprintf(" Most of them, %d, at %s.", most.Drops[reason], r.PortName(most.Node, most.Port))
}

// pauseHints says which port was paused for longest, and which node did it.
func pauseHints(r *lab.Result) (list []string) {
	var most *lab.Port
	for i := range r.Ports {
		if p := &r.Ports[i]; p.Paused > 0 && (most == nil || p.Paused > most.Paused) {
			most = p
		}
	}
	if most == nil || r.End == 0 {
		return nil
	}
	text := fmt.Sprintf("%d pause frames. %s was paused for longest: by %s, for %v, %.1f %% of the run.", r.Totals.XOFFs, r.PortName(most.Node, most.Port),
		r.NodeName(most.Peer), lab.Time(most.Paused), 100*float64(most.Paused)/float64(r.End))
	switch {
	case most.Peer < r.Hosts:
		text += " It leads to a host, which asks for that itself: an adapter that has failed (pause-storm)."
	case most.Node >= r.Hosts:
		text += " It is a port between switches: flows wait there whose own ways are free."
	}
	return []string{text}
}

// loadHints says which cables were full.
func loadHints(r *lab.Result, s *lab.Summary) (list []string) {
	var full []string
	for i := range r.Ports {
		if p := &r.Ports[i]; load(r.End, p) >= .9 && p.Node >= r.Hosts {
			full = append(full, r.PortName(p.Node, p.Port))
		}
	}
	if n := len(full); n > 0 {
		list = append(list, fmt.Sprintf("Cables that were in use for 90 %% of the run or more: %s. What goes there can take no less time.", some(full)))
	}
	if s.Marks > 0 && s.WindowCuts+s.RateCuts == 0 {
		list = append(list, fmt.Sprintf("%d packets were marked, and no sender has slowed down: its congestion control does not heed marks, or notifications were lost.", s.Marks))
	}
	return list
}

// some joins names, the first of them.
func some(names []string) string {
	if n := len(names); n > mostLines {
		return strings.Join(names[:mostLines], ", ") + fmt.Sprintf(" and %d more", n-mostLines)
	}
	return strings.Join(names, ", ")
}

// held returns for how long the host that sends a flow's data was paused while
// the flow went on.
func held(r *lab.Result, f *lab.Flow) (sum lab.Time) {
	sender, end := f.Src, f.End
	if f.Op() == "read" {
		sender = f.Dst
	}
	if end == 0 {
		end = r.End
	}
	for i := range r.Pauses {
		if p := &r.Pauses[i]; p.Node == sender {
			sum += max(min(p.Until, end)-max(p.At, f.Start), 0)
		}
	}
	return sum
}

// cause says what has held up a flow, as far as its hosts know.
func cause(r *lab.Result, f *lab.Flow) string {
	c := f.Counters
	if c == nil {
		return ""
	}
	var parts []string
	if at := held(r, f); at > 0 {
		parts = append(parts, fmt.Sprintf("its host was paused for %v", at))
	}
	for _, x := range []struct {
		n    uint64
		text string
	}{
		{c.Timeouts, "timeouts"}, {c.Retransmits, "packets sent again"}, {c.ReadReplays, "READs answered again"}, {c.Probes, "probes"},
		{c.CNPs, "notifications"}, {c.WindowCuts, "window cuts"}, {c.RateCuts, "rate cuts"}, {c.Reordered, "packets overtaken"},
	} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.text))
		}
	}
	if len(parts) == 0 {
		return "nothing was lost or marked, and its host not paused: it has waited in queues"
	}
	return strings.Join(parts, ", ")
}
