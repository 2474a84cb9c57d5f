package agent

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// begin takes the faults of a command from its arguments.
func (s *scene) begin(a *args) error {
	s.faults = map[string]string{}
	for _, fault := range []string{"drop", "dup", "keep"} {
		text := a.take(fault)
		for _, f := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
			s.faults[f] = fault
		}
	}
	for _, x := range s.sides {
		x.sent = 0
	}
	return nil
}

// deliver carries what the agents send until they are silent.
func (s *scene) deliver(a *args) error {
	if err := s.begin(a); err != nil {
		return err
	}
	only := a.take("from")
	most := math.MaxInt
	if text := a.take("n"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		most = n
	}
	s.carry(only, most)
	return nil
}

func (s *scene) carry(only string, most int) {
	for quiet := false; !quiet; {
		quiet = true
		for _, x := range s.sides {
			if only != "" && x.name != only {
				continue
			}
			for most > 0 && s.carryOne(x) {
				quiet = false
				most--
			}
		}
	}
}

// carryOne carries the next MAD of x, and reports whether there was one.
func (s *scene) carryOne(x *side) bool {
	f := flight{from: x}
	path, ok := x.Send(f.mad[:])
	if !ok {
		return false
	}
	x.sent++
	_, m, err := mad.Parse(f.mad[:])
	if f.to = s.byAddr[path.Remote]; f.to == nil || err != nil || path.Local != x.addr {
		s.say("%s> nonsense: %+v, %v", x.name, path, err)
		return true
	}
	fault := s.faults[x.name+strconv.Itoa(x.sent)]
	if fault == "" {
		fault = s.faults[x.name+"*"]
	}
	line := fmt.Sprintf("%s>%s %s", x.name, f.to.name, s.show(m, x, f.to))
	switch fault {
	case "":
		s.say("%s", line)
		s.arrive(f)
	case "drop":
		s.say("%s  (lost)", line)
	case "dup":
		s.say("%s  (twice)", line)
		s.arrive(f)
		s.arrive(f)
	case "keep":
		s.say("%s  (kept)", line)
		s.kept = append(s.kept, f)
	}
	return true
}

func (s *scene) arrive(f flight) {
	f.to.Receive(s.now, Path{Local: f.to.addr, Remote: f.from.addr, HopLimit: 63}, f.mad[:])
	s.events()
}

// late delivers what was kept, and what comes of it.
func (s *scene) late(a *args) error {
	if err := s.begin(a); err != nil {
		return err
	}
	kept := s.kept
	s.kept = nil
	for _, f := range kept {
		_, m, _ := mad.Parse(f.mad[:])
		s.say("late: %s>%s %s", f.from.name, f.to.name, s.show(m, f.from, f.to))
		s.arrive(f)
	}
	s.carry("", math.MaxInt)
	return nil
}

// advance moves the time, timer by timer.
func (s *scene) advance(a *args) error {
	if err := s.begin(a); err != nil {
		return err
	}
	d, err := time.ParseDuration(a.words[1])
	if err != nil {
		return err
	}
	s.stamps = true
	defer func() { s.stamps = false }()
	end := s.now.Add(d)
	for {
		next := end
		for _, x := range s.sides {
			next = min(next, x.Deadline())
		}
		s.now = max(next, s.now)
		for _, x := range s.sides {
			x.Advance(s.now)
		}
		s.events()
		s.carry("", math.MaxInt)
		if next >= end {
			return nil
		}
	}
}

// inject hands an agent a MAD as though another had sent it.
func (s *scene) inject(a *args) error {
	to, from := s.byName[a.words[1]], s.byName[a.named["from"]]
	if from == nil {
		return fmt.Errorf("from=a, b or c")
	}
	f := flight{from: from, to: to}
	if a.words[0] == "raw" {
		b, err := hex.DecodeString(a.words[2])
		if err != nil {
			return err
		}
		to.Receive(s.now, Path{Local: to.addr, Remote: from.addr}, b)
		return nil
	}
	fields, quiet := a.all[4:], a.all[len(a.all)-1] == "quiet"
	if quiet {
		fields = fields[:len(fields)-1]
	}
	m, err := s.parseMessage(a.words[2], fields, from, to)
	if err != nil {
		return err
	}
	m.AppendTo(f.mad[:0])
	s.arrive(f)
	if quiet {
		return nil
	}
	return s.deliver(&args{named: map[string]string{}})
}
