package fault

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Grammar describes the text of a rule, for the help of a program.
const Grammar = `ACTION[=RATE][:CONDITION=VALUE]...

ACTION      drop, duplicate, corrupt (the ICRC is wrong),
            delay (needs by=TIME), reorder (by=N later packets overtake, default 1)
RATE        of the packets: 1% or 0.01; each packet is hit with this probability
CONDITION   dir=in|out      received or sent packets; default both, counted apart
            opcode=NAME,... only these packets (see below)
            nth=N           only the Nth packet
            every=N         every Nth packet
            limit=N         at most N times
            by=TIME or N    how much later: delay:by=5ms, reorder:by=3
            hold=TIME       reorder: sent after this time at the latest, default 10ms
            seed=N          of the rates; one for all rules

All conditions must hold; nth, every and RATE count the packets that dir and
opcode let through. Without conditions every packet is hit. Of several rules the
first that hits a packet decides.

Opcodes have the names of the specification, without "RC" and "RDMA": SEND_FIRST,
SEND_MIDDLE, SEND_LAST, SEND_LAST_IMM, SEND_LAST_INV, SEND_ONLY, SEND_ONLY_IMM,
SEND_ONLY_INV, WRITE_FIRST ... WRITE_ONLY_IMM, READ_REQUEST, READ_RESPONSE_FIRST,
READ_RESPONSE_MIDDLE, READ_RESPONSE_LAST, READ_RESPONSE_ONLY, ACK (NAKs too),
ATOMIC_ACK, COMPARE_SWAP, FETCH_ADD, CNP; or whole kinds: SEND, WRITE,
READ_RESPONSE, ATOMIC.`

// Limits of what the text of a rule may ask for.
const (
	maxNumber = 1<<31 - 1
	maxDelay  = time.Minute
)

// ParseError says what is wrong with the text of a rule.
type ParseError struct {
	Text   string // the whole rule
	Offset int    // where in it, in bytes
	Reason string // what is wrong and what is allowed
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("fault rule %q, character %d: %s", e.Text, utf8.RuneCountInString(e.Text[:e.Offset])+1, e.Reason)
}

// Spec is a set of rules with the seed of their rates.
type Spec struct {
	Rules  []Rule
	Seed   uint64
	Seeded bool // a seed was given
}

// Add parses text, a rule or "seed=N" alone, and adds it. The syntax is that of
// Grammar. A seed may be given with any rule, but only one seed. The error is a
// *ParseError; then s is as before.
func (s *Spec) Add(text string) error {
	p := ruleParser{text: text}
	if err := p.parse(); err != nil {
		return err
	}
	if p.has["seed"] {
		if s.Seeded && s.Seed != p.seed {
			return p.fail(p.seedAt, "the seed is %d already: all rules share one", s.Seed)
		}
		s.Seed, s.Seeded = p.seed, true
	}
	if p.rule.Action != 0 {
		s.Rules = append(s.Rules, p.rule)
	}
	return nil
}

// ParseRule parses the text of one rule, in the syntax of Grammar, without a
// seed. The error is a *ParseError.
func ParseRule(text string) (Rule, error) {
	p := ruleParser{text: text}
	if err := p.parse(); err != nil {
		return Rule{}, err
	}
	if p.has["seed"] {
		return Rule{}, p.fail(p.seedAt, "a seed is not a part of a single rule")
	}
	return p.rule, nil
}

// ruleParser parses one text.
type ruleParser struct {
	text   string
	rule   Rule
	has    map[string]bool // conditions that were given, "rate" too
	seed   uint64
	seedAt int
}

func (p *ruleParser) fail(offset int, format string, args ...any) error {
	return &ParseError{Text: p.text, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

func (p *ruleParser) parse() error {
	p.has = map[string]bool{}
	at := 0
	for i, part := range strings.Split(p.text, ":") {
		key, value, given := strings.Cut(part, "=")
		f := field{p: p, key: key, value: value, given: given, at: at, valueAt: at + len(key) + 1}
		var err error
		switch {
		case i == 0 && key == "seed":
			err = f.condition()
		case i == 0:
			err = f.action()
		case p.rule.Action == 0:
			err = p.fail(at, "nothing follows a seed that stands alone; a rule begins with its action: %s", actions)
		default:
			err = f.condition()
		}
		if err != nil {
			return err
		}
		at += len(part) + 1
	}
	return p.check()
}

// check looks at what was given together.
func (p *ruleParser) check() error {
	end := len(p.text)
	var counts []string
	for _, k := range []string{"rate", "nth", "every"} {
		if p.has[k] {
			counts = append(counts, k)
		}
	}
	switch {
	case len(counts) > 1:
		return p.fail(end, "%s and %s do not go together: one of rate, nth and every says how often", counts[0], counts[1])
	case p.rule.Action == Delay && !p.has["by"]:
		return p.fail(end, "by how much is missing: for example delay:by=5ms")
	}
	return nil
}

const actions = "drop, duplicate, reorder, corrupt, delay"

// field is one part of a rule: key, or key=value.
type field struct {
	p           *ruleParser
	key, value  string
	given       bool // there is a "="
	at, valueAt int
}

func (f *field) action() error {
	p := f.p
	i := slices.Index(actionNames[Drop:], f.key)
	if i < 0 {
		if f.key == "" {
			return p.fail(f.at, "a rule begins with its action: %s", actions)
		}
		return p.fail(f.at, "there is no action %q; %sthere are %s", f.key, guess(f.key, actionNames[Drop:]), actions)
	}
	p.rule.Action = Drop + Action(i)
	if !f.given {
		return nil
	}
	if _, err := time.ParseDuration(f.value); err == nil && p.rule.Action == Delay && f.value != "0" {
		return p.fail(f.valueAt, "here stands how often, for example delay=1%%; how long is delay:by=%s", f.value)
	}
	p.has["rate"] = true
	return f.rate()
}

var conditions = []string{"dir", "opcode", "nth", "every", "limit", "by", "hold", "rate", "seed"}

func (f *field) condition() error {
	p := f.p
	if !slices.Contains(conditions, f.key) {
		if slices.Contains(actionNames[Drop:], f.key) {
			return p.fail(f.at, "%s is an action, and a rule has one; another one is a rule of its own", f.key)
		}
		return p.fail(f.at, "there is no condition %q; %sthere are %s", f.key, guess(f.key, conditions), strings.Join(conditions, ", "))
	}
	if p.has[f.key] {
		return p.fail(f.at, "%s is there twice", f.key)
	}
	if !f.given || f.value == "" {
		return p.fail(f.at, "%s has no value: write %s=…", f.key, f.key)
	}
	p.has[f.key] = true
	switch f.key {
	case "dir":
		return f.direction()
	case "opcode":
		return f.opcodes()
	case "nth":
		return f.number(&p.rule.Nth, maxNumber)
	case "every":
		return f.number(&p.rule.Every, maxNumber)
	case "limit":
		return f.number(&p.rule.Limit, maxNumber)
	case "by":
		return f.by()
	case "hold":
		if p.rule.Action != Reorder {
			return p.fail(f.at, "hold is for reorder only")
		}
		return f.duration(&p.rule.Delay)
	case "rate":
		return f.rate()
	}
	p.seedAt = f.valueAt
	n, err := strconv.ParseUint(f.value, 10, 64)
	if err != nil {
		return p.fail(f.valueAt, "%q is not a seed: a number from 0 to 18446744073709551615", f.value)
	}
	p.seed = n
	return nil
}

func (f *field) direction() error {
	switch f.value {
	case "in":
		f.p.rule.Direction = Rx
	case "out":
		f.p.rule.Direction = Tx
	default:
		return f.p.fail(f.valueAt, "%q is not a direction: in (received) or out (sent)", f.value)
	}
	return nil
}

func (f *field) number(to *int, most int) error {
	n, err := strconv.ParseUint(f.value, 10, 31)
	if err != nil || n < 1 || n > uint64(most) {
		return f.p.fail(f.valueAt, "%s: %q is not a whole number from 1 to %d", f.key, f.value, most)
	}
	*to = int(n)
	return nil
}

func (f *field) duration(to *time.Duration) error {
	d, err := time.ParseDuration(f.value)
	if err != nil || d <= 0 || d > maxDelay {
		return f.p.fail(f.valueAt, "%s: %q is not a time above 0 and up to %v, such as 500us, 5ms or 1s", f.key, f.value, maxDelay)
	}
	*to = d
	return nil
}

func (f *field) by() error {
	switch f.p.rule.Action {
	case Delay:
		return f.duration(&f.p.rule.Delay)
	case Reorder:
		return f.number(&f.p.rule.Distance, maxHeld)
	}
	return f.p.fail(f.at, "by is for delay (a time) and reorder (a number of packets) only")
}

func (f *field) rate() error {
	number, percent := strings.CutSuffix(f.value, "%")
	v, err := strconv.ParseFloat(number, 64)
	if strings.Trim(number, "0123456789.e-") != "" || err != nil {
		hint := ""
		if strings.Contains(f.value, ",") {
			hint = `; conditions are separated by ":"`
		}
		return f.p.fail(f.valueAt, "%q is not a rate, such as 1%% or 0.01%s", f.value, hint)
	}
	if !percent && v >= 1 {
		return f.p.fail(f.valueAt, "a rate of %s: write %s%% for per cent, or a fraction below 1", number, number)
	}
	if percent {
		v /= 100
	}
	if v <= 0 || v > 1 {
		return f.p.fail(f.valueAt, "a rate of %s: it must be above 0 and at most 100%%", f.value)
	}
	f.p.rule.Rate = v
	return nil
}

func (f *field) opcodes() error {
	at := f.valueAt
	for _, name := range strings.Split(f.value, ",") {
		list := opcodesOf(name)
		if len(list) == 0 {
			return f.p.fail(at, "there is no opcode %q; %sthere are %s", name, guess(plainOpcode(name), opcodeNames()), strings.Join(opcodeNames(), ", "))
		}
		for _, o := range list {
			if !slices.Contains(f.p.rule.Opcodes, o) {
				f.p.rule.Opcodes = append(f.p.rule.Opcodes, o)
			}
		}
		at += len(name) + 1
	}
	return nil
}

// opcodeKinds are the names that stand for several opcodes.
var opcodeKinds = map[string]func(*rocev2.OpcodeInfo) bool{
	"SEND":          func(i *rocev2.OpcodeInfo) bool { return i.Operation == rocev2.OpSend },
	"WRITE":         func(i *rocev2.OpcodeInfo) bool { return i.Operation == rocev2.OpWrite },
	"READ_RESPONSE": func(i *rocev2.OpcodeInfo) bool { return i.Operation == rocev2.OpReadResponse },
	"ATOMIC": func(i *rocev2.OpcodeInfo) bool {
		return i.Operation == rocev2.OpCompareSwap || i.Operation == rocev2.OpFetchAdd
	},
}

// opcodesOf returns the opcodes of reliable connections, and CNP, that a name
// stands for.
func opcodesOf(name string) (list []rocev2.Opcode) {
	name = plainOpcode(name)
	kind := opcodeKinds[name]
	for o := range rocev2.Opcode(255) {
		if info, ok := ownOpcode(o); ok && (plainOpcode(info.Name) == name || kind != nil && kind(info)) {
			list = append(list, o)
		}
	}
	return list
}

func ownOpcode(o rocev2.Opcode) (*rocev2.OpcodeInfo, bool) {
	info, ok := o.Info()
	return info, ok && (info.Service == rocev2.ServiceRC || info.Service == rocev2.ServiceCNP)
}

func opcodeNames() (names []string) {
	for o := range rocev2.Opcode(255) {
		if info, ok := ownOpcode(o); ok {
			names = append(names, plainOpcode(info.Name))
		}
	}
	return append(names, "SEND", "WRITE", "READ_RESPONSE", "ATOMIC")
}

// plainOpcode is a name of an opcode without what all of them have, and short:
// RC_RDMA_WRITE_LAST_WITH_IMMEDIATE is WRITE_LAST_IMM.
func plainOpcode(name string) string {
	name = strings.ReplaceAll(strings.ToUpper(name), "-", "_")
	name = strings.TrimPrefix(name, "RC_")
	name = strings.TrimPrefix(name, "RDMA_")
	return opcodeShort.Replace(name)
}

var opcodeShort = strings.NewReplacer(
	"_WITH_IMMEDIATE", "_IMM", "_WITH_IMM", "_IMM", "_WITH_INVALIDATE", "_INV", "_WITH_INV", "_INV",
	"ACKNOWLEDGE", "ACK", "CMP_SWAP", "COMPARE_SWAP",
)

// guess returns "did you mean X? " if one of names is close to word.
func guess(word string, names []string) string {
	best, least := "", len(word)/3+2
	for _, n := range names {
		if d := distance(word, n); d < least {
			best, least = n, d
		}
	}
	if best == "" {
		return ""
	}
	return "did you mean " + best + "? "
}

// maxWord bounds the work of distance.
const maxWord = 40

// distance is how many letters differ between two words (Levenshtein).
func distance(a, b string) int {
	if len(a) > maxWord || len(b) > maxWord {
		return maxWord
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}

// String returns the rule in the syntax of Grammar. PSNs and Match have none
// and are left out.
func (r Rule) String() string {
	var b strings.Builder
	b.WriteString(r.Action.String())
	if r.Rate > 0 {
		b.WriteString("=" + rateText(r.Rate))
	}
	add := func(given bool, key string, value any) {
		if given {
			fmt.Fprintf(&b, ":%s=%v", key, value)
		}
	}
	add(r.Direction == Rx, "dir", "in")
	add(r.Direction == Tx, "dir", "out")
	var names []string
	for _, o := range r.Opcodes {
		names = append(names, plainOpcode(o.String()))
	}
	add(len(names) > 0, "opcode", strings.Join(names, ","))
	add(r.Nth > 0, "nth", r.Nth)
	add(r.Every > 0, "every", r.Every)
	add(r.Limit > 0, "limit", r.Limit)
	add(r.Action == Delay && r.Delay > 0, "by", r.Delay)
	add(r.Action == Reorder && r.Distance > 0, "by", r.Distance)
	add(r.Action == Reorder && r.Delay > 0, "hold", r.Delay)
	return b.String()
}

// rateText writes a rate so that it is read back as it is.
func rateText(v float64) string {
	s := strconv.FormatFloat(v*100, 'g', -1, 64)
	if back, err := strconv.ParseFloat(s, 64); err == nil && back/100 == v && !strings.Contains(s, "+") {
		return s + "%"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// Each calls f for every counter with its name, in fixed order.
func (c *Counts) Each(f func(name string, value uint64)) {
	f("packets", c.Packets)
	f("dropped", c.Dropped)
	f("duplicated", c.Duplicated)
	f("reordered", c.Reordered)
	f("corrupted", c.Corrupted)
	f("delayed", c.Delayed)
	f("overflows", c.Overflows)
}
