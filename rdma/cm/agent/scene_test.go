package agent

import (
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/internal/scripts"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// TestScripts runs every script of testdata. A script is a conversation between
// agents that reads as prose:
//
//	agent a|b|c [guid= halfopen= persource= backlog= timewaits= replies=]
//	    starts an agent, at 10.0.0.1, .2, .3, or starts it again: it has
//	    forgotten all
//	listen b tcp:7 [backlog=N];  unlisten b tcp:7 [expect=]
//	connect a b tcp:7 [first=250ms longest=] [FIELD=VALUE …]
//	    names the IDs of a: a1, a2, … in order
//	accept b b1 [FIELD=VALUE …];  ready a a1 [private=]
//	reject b b1 reason=28 [ari= private=]
//	disconnect a a1 [private=];  confirm b b1 [private=];  release a a1
//	communicated b b1;  take b b1
//	resolve a b udp:7 [retries= private=];  answer b b1 [FIELD=VALUE …]
//	deliver [drop=a2,b1] [dup=b1] [from=a] [n=1]
//	    carries MADs until all are silent; a2 is the second one that a sends
//	    in this command, a* all of them. keep=a1 keeps one until late
//	late
//	    delivers what was kept
//	advance 5ms [drop=]
//	    moves the time; what the timers cause is carried, with the time
//	inject b from=a MESSAGE [FIELD=VALUE …] [quiet]
//	    hands a MAD to b as though a had sent it, and carries the answers,
//	    unless quiet
//	raw b from=a HEX
//	stats b;  state b b1
//
// Events are shown as they come: "b: request b1, …".
func TestScripts(t *testing.T) {
	t.Parallel()
	scripts.Run(t, func() func(string) ([]string, error) { return newScene().run })
}

// side is an agent in a scene.
type side struct {
	*Agent
	name   string
	addr   netip.Addr
	ids    int
	sent   int // in this command
	random uint32
}

// qpn returns the number of the queue pair that the next connection has.
func (x *side) qpn() rocev2.QPN { return rocev2.QPN(x.name[0]-'a'+1)<<8 + rocev2.QPN(x.ids) }

type flight struct {
	from, to *side
	mad      [mad.Len]byte
}

type scene struct {
	now    clock.Time
	sides  []*side
	byName map[string]*side
	byAddr map[netip.Addr]*side
	names  map[ID]string
	kept   []flight
	out    []string
	faults map[string]string // "a1" → drop, dup or keep
	stamps bool
}

func newScene() *scene {
	s := &scene{now: 1e9, byName: map[string]*side{}, byAddr: map[netip.Addr]*side{}, names: map[ID]string{}}
	for i, name := range []string{"a", "b", "c"} {
		x := &side{name: name, addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), random: uint32(i) * 7919}
		s.sides = append(s.sides, x)
		s.byName[name], s.byAddr[x.addr] = x, x
		x.start(Config{GUID: mad.GUID(0xa + i)})
	}
	return s
}

func (x *side) start(cfg Config) {
	cfg.Random = func() uint32 {
		x.random = x.random*1664525 + 1013904223
		return x.random
	}
	x.Agent = New(cfg)
}

// args are the arguments of a command: words, and values by name.
type args struct {
	words []string
	named map[string]string
	all   []string
}

func parseArgs(line string) args {
	a := args{named: map[string]string{}}
	for _, f := range strings.Fields(line) {
		a.all = append(a.all, f)
		if k, v, ok := strings.Cut(f, "="); ok {
			a.named[k] = v
		} else {
			a.words = append(a.words, f)
		}
	}
	return a
}

// take returns a named value and removes it.
func (a *args) take(name string) string {
	v := a.named[name]
	delete(a.named, name)
	return v
}

func (s *scene) run(line string) ([]string, error) {
	s.out = nil
	a := parseArgs(line)
	if len(a.words) > 1 && a.words[0] != "advance" && s.byName[a.words[1]] == nil {
		return nil, fmt.Errorf("no agent %q", a.words[1])
	}
	f := map[string]func(*args) error{
		"agent": s.agent, "listen": s.listen, "unlisten": s.listen, "connect": s.connect, "resolve": s.resolve,
		"accept": s.accept, "answer": s.answer, "reject": s.reject, "deliver": s.deliver, "late": s.late, "advance": s.advance,
		"inject": s.inject, "raw": s.inject, "stats": s.showStats, "state": s.simple, "ready": s.simple, "disconnect": s.simple,
		"confirm": s.simple, "release": s.simple, "communicated": s.simple, "take": s.simple, "leave": s.leave,
	}[a.words[0]]
	if f == nil {
		return nil, fmt.Errorf("no command %q", a.words[0])
	}
	if err := f(&a); err != nil {
		return nil, err
	}
	s.events()
	return s.out, nil
}

func (s *scene) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if s.stamps {
		text = fmt.Sprintf("%v ", time.Duration(s.now-1e9)) + text
	}
	s.out = append(s.out, text)
}

// failed shows an error that a program would see.
func (s *scene) failed(err error) error {
	if err != nil {
		s.say("error: %v", err)
	}
	return nil
}

// events shows what the agents tell.
func (s *scene) events() {
	for _, x := range s.sides {
		for {
			e, ok := x.Event()
			if !ok {
				break
			}
			if _, known := s.names[e.ID]; !known {
				s.name(x, e.ID)
			}
			s.say("%s", s.showEvent(x, &e))
		}
	}
}

func (s *scene) name(x *side, id ID) {
	x.ids++
	s.names[id] = x.name + strconv.Itoa(x.ids)
}

func (s *scene) agent(a *args) error {
	x := s.byName[a.words[1]]
	cfg := Config{GUID: mad.GUID(0xa + uint64(x.name[0]-'a'))}
	for name, v := range map[string]*int{
		"halfopen": &cfg.HalfOpen, "persource": &cfg.HalfOpenPerSource, "backlog": &cfg.Backlog, "timewaits": &cfg.Timewaits, "replies": &cfg.Replies,
	} {
		if text := a.take(name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				return err
			}
			*v = n
		}
	}
	if text := a.take("guid"); text != "" {
		n, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			return err
		}
		cfg.GUID = mad.GUID(n)
	}
	x.start(cfg)
	return nil
}

func (s *scene) listen(a *args) error {
	x := s.byName[a.words[1]]
	service, err := parseService(a.words[2])
	if err != nil {
		return err
	}
	if a.words[0] == "unlisten" {
		x.Unlisten(service)
		if d := s.duration(a, "expect"); d > 0 {
			x.Expect(s.now, service, d)
		}
		return nil
	}
	backlog, _ := strconv.Atoi(a.named["backlog"])
	return s.failed(x.Listen(service, backlog))
}

// fill sets the fields of a message from the named arguments.
func (s *scene) fill(a *args, m mad.Message) error {
	for k, v := range a.named {
		if err := s.set(m, k, v); err != nil {
			return err
		}
	}
	return nil
}

func (s *scene) duration(a *args, name string) time.Duration {
	d, _ := time.ParseDuration(a.take(name))
	return d
}

func (s *scene) connect(a *args) error {
	x, y := s.byName[a.words[1]], s.byName[a.words[2]]
	service, err := parseService(a.words[3])
	if err != nil {
		return err
	}
	r := ConnectRequest{
		Path:         Path{Local: x.addr, Remote: y.addr},
		FirstTimeout: s.duration(a, "first"), MaxTimeout: s.duration(a, "longest"),
		REQ: mad.REQ{ServiceID: service, LocalQPN: x.qpn(), PathMTU: 3, Primary: mad.Path{AckTimeout: 14}},
	}
	if err := s.fill(a, &r.REQ); err != nil {
		return err
	}
	id, err := x.Connect(s.now, &r)
	if err == nil {
		s.name(x, id)
	}
	return s.failed(err)
}

func (s *scene) resolve(a *args) error {
	x, y := s.byName[a.words[1]], s.byName[a.words[2]]
	service, err := parseService(a.words[3])
	if err != nil {
		return err
	}
	retries, _ := strconv.Atoi(a.named["retries"])
	id, err := x.Resolve(s.now, &SIDRRequest{
		Path: Path{Local: x.addr, Remote: y.addr}, ServiceID: service, Retries: uint8(retries), Private: []byte(a.named["private"]),
	})
	if err == nil {
		s.name(x, id)
	}
	return s.failed(err)
}

func (s *scene) accept(a *args) error {
	x := s.byName[a.words[1]]
	id, err := s.id(a.words[2])
	if err != nil {
		return err
	}
	rep := mad.REP{LocalQPN: x.qpn()}
	if n, err := strconv.Atoi(strings.TrimLeft(a.words[2], "abc")); err == nil { // another for each
		rep.LocalQPN = rocev2.QPN(x.name[0]-'a'+1)<<8 + rocev2.QPN(n)
	}
	if err := s.fill(a, &rep); err != nil {
		return err
	}
	return s.failed(x.Accept(s.now, id, &rep))
}

func (s *scene) answer(a *args) error {
	x := s.byName[a.words[1]]
	id, err := s.id(a.words[2])
	if err != nil {
		return err
	}
	var rep mad.SIDRREP
	if err := s.fill(a, &rep); err != nil {
		return err
	}
	return s.failed(x.Answer(s.now, id, &rep))
}

func (s *scene) reject(a *args) error {
	x := s.byName[a.words[1]]
	id, err := s.id(a.words[2])
	if err != nil {
		return err
	}
	var rej mad.REJ
	if err := s.fill(a, &rej); err != nil {
		return err
	}
	return s.failed(x.Reject(s.now, id, rej.Reason, rej.ARI, rej.Private))
}

func (s *scene) simple(a *args) error {
	x := s.byName[a.words[1]]
	id, err := s.id(a.words[2])
	if err != nil {
		return err
	}
	private := []byte(a.named["private"])
	switch a.words[0] {
	case "ready":
		err = x.Ready(s.now, id, private)
	case "disconnect":
		err = x.Disconnect(s.now, id, private)
	case "confirm":
		err = x.Confirm(s.now, id, private)
	case "release":
		x.Release(s.now, id)
	case "communicated":
		x.Communicated(id)
	case "take":
		x.Take(id)
	case "state":
		s.say("%v", x.State(id))
	}
	return s.failed(err)
}

// leave is the end of a side's program.
func (s *scene) leave(a *args) error {
	s.byName[a.words[1]].Leave()
	return nil
}

// showStats shows the counters that are not 0.
func (s *scene) showStats(a *args) error {
	x := s.byName[a.words[1]]
	v := reflect.ValueOf(x.Stats())
	var out []string
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			out = append(out, fmt.Sprintf("%s=%v", strings.ToLower(v.Type().Field(i).Name), v.Field(i)))
		}
	}
	s.say("%s", strings.Join(out, " "))
	return nil
}
