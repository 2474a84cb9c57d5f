package tracefile

import (
	"math"
	"strings"
)

// HTSim reads a connection matrix of htsim (connection_matrix.cpp of
// Broadcom/csg-htsim): a start is in picoseconds, and a size of 0 is a flow
// without an end. The priority of a flow ("prio") is left out, and so is what
// comes before the first connection and is not known. Failures of links are a
// mistake: a scenario names them in its own words.
func HTSim(text string, l Limits) (*File, error) {
	h := htsim{limits: l.withDefaults(), file: &File{}, trigger: map[int64]int{}, counts: map[string]int64{}}
	number := 0
	for line := range strings.Lines(text) {
		number++
		if fields := strings.Fields(line); len(fields) > 0 && fields[0][0] != '#' {
			h.line(number, fields)
		}
		if len(h.file.Flows) > h.limits.Flows || len(h.file.Triggers) > h.limits.Flows {
			h.add(number, "there are more than %d flows, or triggers", h.limits.Flows)
			break
		}
	}
	h.end()
	return h.file, h.err()
}

// htsim is a file that is read.
type htsim struct {
	mistakes
	limits   Limits
	file     *File
	trigger  map[int64]int // index by number
	counts   map[string]int64
	triggers int64 // that the file has described
	begun    bool  // the header is over
}

// line takes a line that is not empty.
func (h *htsim) line(number int, fields []string) {
	from, to, arrow := strings.Cut(fields[0], "->")
	switch {
	case arrow:
		h.begun = true
		h.connection(number, from, to, fields[1:])
	case fields[0] == "trigger":
		h.begun = true
		h.describe(number, fields[1:])
	case fields[0] == "failure":
		h.begun = true
		h.add(number, "a failure of a link: take it out, and name the cable in a [[failure]] of the scenario")
	case h.begun:
		h.add(number, "%.40q is neither a connection, as 1->0, nor a trigger", fields[0])
	case len(fields) >= 2:
		switch fields[0] {
		case "Nodes", "Connections", "Triggers", "Failures":
			n, err := whole(fields[1])
			if err != nil {
				h.add(number, "%s: %w", fields[0], err)
			}
			h.counts[fields[0]] = n
		}
	}
}

// words takes pairs of a name and a number, and words alone.
func (h *htsim) words(number int, fields []string, pairs map[string]*int64, alone map[string]func()) bool {
	for len(fields) > 0 {
		word := fields[0]
		if f := alone[word]; f != nil {
			f()
			fields = fields[1:]
			continue
		}
		to := pairs[word]
		if to == nil {
			h.add(number, "%.40q is not known", word)
			return false
		}
		if len(fields) == 1 {
			h.add(number, "%s has no number", word)
			return false
		}
		var err error
		if *to, err = decimal(fields[1], 1); err == nil && word != "start" {
			*to, err = whole(fields[1])
		}
		if err != nil {
			h.add(number, "%s: %w", word, err)
			return false
		}
		fields = fields[2:]
	}
	return true
}

// connection takes a flow.
func (h *htsim) connection(number int, from, to string, fields []string) {
	f := none(number)
	start, id, prio, after, sent, got := int64(-1), int64(-1), int64(0), int64(0), int64(0), int64(0)
	src, err := whole(from)
	dst, err2 := whole(to)
	if err != nil || err2 != nil {
		h.add(number, "%.40q is no connection: it is written like 1->0", from+"->"+to)
		return
	}
	ok := h.words(number, fields, map[string]*int64{
		"start": &start, "size": &f.Bytes, "id": &id, "prio": &prio, "trigger": &after, "send_done_trigger": &sent, "recv_done_trigger": &got,
	}, map[string]func(){"addon": func() {
		h.add(number, "addon: that a trigger adds to a flow is not supported")
	}})
	if !ok {
		return
	}
	switch {
	case start < 0 && after == 0:
		h.add(number, "it has neither a start nor a trigger")
		return
	case start >= 0 && after != 0:
		h.add(number, "it has a start and a trigger: take one of them out")
		return
	}
	f.Src, f.Dst, f.Start = src, dst, max(start, 0)
	f.After, f.SendDone, f.RecvDone = h.index(number, after), h.index(number, sent), h.index(number, got)
	if f.Bytes == 0 && f.SendDone+f.RecvDone > -2 {
		h.add(number, "a flow without an end (size 0) activates no trigger")
	}
	if f.After >= 0 {
		t := &h.file.Triggers[f.After]
		t.Flows = append(t.Flows, len(h.file.Flows))
	}
	h.check(&f, h.limits, true)
	h.file.Flows = append(h.file.Flows, f)
}

// index returns the index of a trigger, which is made where it is new; -1 for
// number 0.
func (h *htsim) index(line int, id int64) int {
	if id == 0 {
		return -1
	}
	i, ok := h.trigger[id]
	if !ok {
		i = len(h.file.Triggers)
		h.trigger[id] = i
		h.file.Triggers = append(h.file.Triggers, Trigger{Line: line, ID: id, Count: -1})
	}
	return i
}

// describe takes what a trigger is.
func (h *htsim) describe(number int, fields []string) {
	var id, count int64
	kinds, kind := 0, OneShot
	is := func(k TriggerKind) func() { return func() { kinds, kind = kinds+1, k } }
	ok := h.words(number, fields, map[string]*int64{"id": &id, "count": &count},
		map[string]func(){"oneshot": is(OneShot), "multishot": is(MultiShot), "barrier": is(Barrier)})
	switch {
	case !ok:
		return
	case id == 0 || kinds != 1:
		h.add(number, "a trigger has an id, which is not 0, and is one of oneshot, multishot, barrier")
		return
	case kind == Barrier && (count < 1 || count > math.MaxInt32):
		h.add(number, "a barrier has a count, which is not 0")
		return
	}
	t := &h.file.Triggers[h.index(number, id)]
	if t.Count >= 0 {
		h.add(number, "trigger %d is there twice", id)
		return
	}
	h.triggers++
	t.Line, t.Kind, t.Count = number, kind, int(count)
}

// end checks what only the whole file tells.
func (h *htsim) end() {
	f := h.file
	f.Nodes = h.counts["Nodes"]
	if len(h.list) > 0 {
		return
	}
	if len(f.Flows) == 0 {
		h.add(0, "there is no connection in it")
	}
	h.counted("Connections", int64(len(f.Flows)))
	h.counted("Triggers", h.triggers)
	for i := range f.Triggers {
		if t := &f.Triggers[i]; t.Count < 0 {
			h.add(t.Line, "trigger %d is nowhere described, as in \"trigger id %d oneshot\"", t.ID, t.ID)
		}
	}
	for i := range f.Flows {
		if k := &f.Flows[i]; f.Nodes > 0 && (k.Src >= f.Nodes || k.Dst >= f.Nodes) {
			h.add(k.Line, "%d->%d: there are %d nodes", k.Src, k.Dst, f.Nodes)
		}
	}
}

// counted compares a number that the header says with what there is.
func (h *htsim) counted(name string, n int64) {
	if want, ok := h.counts[name]; ok && want != n {
		h.add(0, "%s says %d, and there are %d", name, want, n)
	}
}

// String returns the word of a file.
func (k TriggerKind) String() string {
	return [...]string{"oneshot", "multishot", "barrier"}[k]
}
