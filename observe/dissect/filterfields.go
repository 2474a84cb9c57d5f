package dissect

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
)

// filterField is a field that filters compare.
type filterField struct {
	help, example string
	// test returns the condition, or what is wrong with the value.
	test func(op, value string) (condition, string)
}

// filterFlag is what a packet has or has not.
type filterFlag struct {
	help string
	test condition
}

// FilterTerms returns the fields or the flags of filters with what they mean,
// in the order of their names.
func FilterTerms(flags bool) (terms [][2]string) {
	if flags {
		for _, name := range slices.Sorted(maps.Keys(filterFlags)) {
			terms = append(terms, [2]string{name, filterFlags[name].help})
		}
		return terms
	}
	for _, name := range slices.Sorted(maps.Keys(filterFields)) {
		f := filterFields[name]
		terms = append(terms, [2]string{name + " " + f.example, f.help})
	}
	return terms
}

var filterFlags = map[string]filterFlag{
	"cm":            {"message of connection management", func(p *Packet) bool { return p.Mgmt.Present && p.Mgmt.Header.Class == classCM }},
	"mad":           {"management datagram", func(p *Packet) bool { return p.Mgmt.Present }},
	"cnp":           {"congestion notification", func(p *Packet) bool { return p.is(rocev2.OpCNP) }},
	"ack":           {"positive acknowledgement", func(p *Packet) bool { return p.is(rocev2.OpAcknowledge) && p.Wire.AETH.Syndrome.IsACK() }},
	"nak":           {"NAK, RNR included", func(p *Packet) bool { return p.is(rocev2.OpAcknowledge) && !p.Wire.AETH.Syndrome.IsACK() }},
	"rnr":           {"RNR NAK: the receiver was not ready", func(p *Packet) bool { return p.Has(rocev2.HasAETH) && p.Wire.AETH.Syndrome.IsRNR() }},
	"request":       {"packet of a requester", func(p *Packet) bool { return p.Err == nil && p.Info().Role == rocev2.RoleRequest }},
	"response":      {"packet of a responder", func(p *Packet) bool { return p.Err == nil && p.Info().Role == rocev2.RoleResponse }},
	"retransmitted": {"sent again, or answered again", flagged(Retransmitted)},
	"duplicate":     {"sent again after it was acknowledged", flagged(Duplicate)},
	"gap":           {"packets in front of it are missing", flagged(Gap)},
	"out_of_order":  {"comes late and closes a gap", flagged(OutOfOrder)},
	"duplicate_ack": {"acknowledges nothing new", flagged(DuplicateAck)},
	"unseen":        {"answers what the capture does not have", flagged(Unseen)},
	"completes":     {"completes a message", func(p *Packet) bool { return p.Completes.Count > 0 }},
	"ackreq":        {"asks for an acknowledgement", func(p *Packet) bool { return p.HasBTH && p.Wire.BTH.AckReq }},
	"solicited":     {"has the solicited event bit", func(p *Packet) bool { return p.HasBTH && p.Wire.BTH.Solicited }},
	"imm":           {"has immediate data", func(p *Packet) bool { return p.Has(rocev2.HasImmDt) }},
	"marked":        {"met congestion: ECN says so", func(p *Packet) bool { return p.IP.ECN() == 3 }},
	"becn":          {"has the BECN bit", func(p *Packet) bool { return p.HasBTH && p.Wire.BTH.BECN }},
	"offloaded":     {"captured before segmentation, or after receive offload", func(p *Packet) bool { return p.Segments > 0 }},
	"malformed":     {"no receiver takes it", (*Packet).Malformed},
	"sealed":        {"was sealed on the wire, opened or not", func(p *Packet) bool { return p.Sealed.Present }},
	"opened":        {"was sealed, and is opened", func(p *Packet) bool { return p.Sealed.Opened }},
	"replayed":      {"is sealed with an IV that has come before", flagged(Replayed)},
	"cut":           {"not captured as a whole", func(p *Packet) bool { return p.Cut }},
}

func flagged(f Flags) condition { return func(p *Packet) bool { return p.Flags&f != 0 } }

// is reports whether a packet is well formed and has an operation.
func (p *Packet) is(op rocev2.Operation) bool { return p.Err == nil && p.Info().Operation == op }

// kinds are groups of operations.
var kinds = map[string][]rocev2.Operation{
	"send":          {rocev2.OpSend},
	"write":         {rocev2.OpWrite},
	"read":          {rocev2.OpReadRequest, rocev2.OpReadResponse},
	"read_request":  {rocev2.OpReadRequest},
	"read_response": {rocev2.OpReadResponse},
	"atomic":        {rocev2.OpCompareSwap, rocev2.OpFetchAdd, rocev2.OpAtomicWrite, rocev2.OpAtomicAcknowledge},
	"flush":         {rocev2.OpFlush},
	"acknowledge":   {rocev2.OpAcknowledge},
	"cnp":           {rocev2.OpCNP},
}

var services = map[string]rocev2.Service{
	"rc": rocev2.ServiceRC, "uc": rocev2.ServiceUC, "ud": rocev2.ServiceUD, "xrc": rocev2.ServiceXRC, "cnp": rocev2.ServiceCNP,
}

var verdicts = map[string]Verdict{"good": ICRCGood, "bad": ICRCBad, "unknown": ICRCUnknown}

var filterFields map[string]filterField

func init() {
	filterFields = map[string]filterField{
		"host": {"source or destination, an address or a prefix", "192.0.2.0/24", hostTest(true, true)},
		"src":  {"source", "192.0.2.7", hostTest(true, false)},
		"dst":  {"destination", "fd00::7", hostTest(false, true)},
		"kind": {"operation: " + names(kinds), "read", nameTest(kinds, func(p *Packet, ops []rocev2.Operation) bool {
			return p.Err == nil && slices.Contains(ops, p.Info().Operation)
		})},
		"service":    {"transport service: " + names(services), "rc", nameTest(services, func(p *Packet, s rocev2.Service) bool { return p.HasBTH && p.Wire.BTH.Opcode.Service() == s })},
		"icrc":       {"verdict: " + names(verdicts), "bad", nameTest(verdicts, func(p *Packet, v Verdict) bool { return p.ICRC == v })},
		"protocol":   {"protocol of the programs: " + names(protocols), "rdma", nameTest(protocols, func(p *Packet, want Protocol) bool { return p.Conn != nil && p.Conn.Protocol() == want })},
		"opcode":     {"opcode: a name, with or without its service, or a number", "SEND_ONLY", opcodeTest},
		"cm.message": {"message of connection management", "REQ,REP", messageTest},
		"qp":         {"number of one of the two queue pairs", "0x11", numberTest(qpns)},
		"destqp":     {"queue pair that the packet goes to", "17", numberTest(one(func(p *Packet) (uint64, bool) { return uint64(p.destQPN()), p.HasBTH || p.closed() }))},
		"connection": {"number of the connection, as in the lines", "3", numberTest(one(connectionOf))},
		"message":    {"number of the message on its side", "1-5", numberTest(one(func(p *Packet) (uint64, bool) { return p.Message.Number, p.HasMessage }))},
		"frame":      {"number of the frame in the capture", "100-200", numberTest(one(func(p *Packet) (uint64, bool) { return p.Number, true }))},
		"psn":        {"packet sequence number", "5401029", numberTest(one(func(p *Packet) (uint64, bool) { return uint64(p.Wire.BTH.PSN), p.HasBTH }))},
		"msn":        {"message sequence number of an acknowledgement", "7", numberTest(one(func(p *Packet) (uint64, bool) { return uint64(p.Wire.AETH.MSN), p.Has(rocev2.HasAETH) }))},
		"len":        {"length from BTH to ICRC in bytes", "280", numberTest(one(func(p *Packet) (uint64, bool) { return uint64(p.Length), true }))},
		"payload":    {"length of the payload in bytes", "1024", numberTest(one(func(p *Packet) (uint64, bool) { return uint64(p.PayloadLen), p.Err == nil }))},
		"srcport":    {"UDP source port", "49152", numberTest(one(func(p *Packet) (uint64, bool) { return uint64(p.SrcPort), true }))},
		"rkey":       {"remote key", "0x9ef", numberTest(one(rkeyOf))},
		"spi":        {"security parameters index of a sealed packet", "0x05000011", numberTest(one(func(p *Packet) (uint64, bool) { return uint64(p.Sealed.SPI), p.Sealed.Present }))},
		"iv":         {"initialization vector of a sealed packet", "1-100", numberTest(one(func(p *Packet) (uint64, bool) { return p.Sealed.IV, p.Sealed.Present }))},
		"generation": {"which key of its queue pair a sealed packet has", "0", numberTest(one(func(p *Packet) (uint64, bool) { return uint64(p.Sealed.Generation()), p.Sealed.Present }))},
		"pkey":       {"partition key", "0xffff", numberTest(one(func(p *Packet) (uint64, bool) { return uint64(p.Wire.BTH.PKey), p.HasBTH }))},
		"dscp":       {"differentiated services code point", "26", numberTest(one(func(p *Packet) (uint64, bool) { return uint64(p.IP.Class >> 2), true }))},
		"ecn":        {"congestion bits of the IP header, 0 to 3", "3", numberTest(one(func(p *Packet) (uint64, bool) { return uint64(p.IP.ECN()), true }))},
		"vlan":       {"number of the VLAN", "100", numberTest(one(func(p *Packet) (uint64, bool) { return uint64(max(p.VLAN, 0)), p.VLAN >= 0 }))},
		"time":       {"since the first frame", "1.5-2", timeTest(func(p *Packet) (time.Duration, bool) { return p.Offset, true })},
		"rtt":        {"round trip time that the packet ends", ">1ms", timeTest(func(p *Packet) (time.Duration, bool) { return p.RTT, p.RTT > 0 })},
	}
}

func connectionOf(p *Packet) (uint64, bool) {
	if p.Conn == nil {
		return 0, false
	}
	return uint64(p.Conn.ID), true
}

func rkeyOf(p *Packet) (uint64, bool) {
	switch {
	case p.Has(rocev2.HasRETH):
		return uint64(p.Wire.RETH.RKey), true
	case p.Has(rocev2.HasAtomicETH):
		return uint64(p.Wire.AtomicETH.RKey), true
	}
	return uint64(p.Wire.IETH.RKey), p.Has(rocev2.HasIETH)
}

// qpns returns the numbers of both queue pairs, as far as they are known.
func qpns(p *Packet) (list []uint64) {
	if p.HasBTH || p.closed() {
		list = append(list, uint64(p.destQPN()))
	}
	if p.Has(rocev2.HasDETH) {
		list = append(list, uint64(p.Wire.DETH.SrcQPN))
	}
	if p.Conn != nil {
		for _, e := range [...]Endpoint{p.Conn.A, p.Conn.B} {
			if e.Known {
				list = append(list, uint64(e.QPN))
			}
		}
	}
	return list
}

// destQPN returns the queue pair that a packet goes to, also of one that is not
// opened.
func (p *Packet) destQPN() rocev2.QPN {
	if p.closed() {
		return p.Sealed.QPN()
	}
	return p.Wire.BTH.DestQPN
}

func names[T any](m map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}

// suggest returns the names that begin alike, as the end of a message.
func suggest[T any](name string, m map[string]T, more ...map[string]filterField) string {
	var all, close []string
	all = slices.Collect(maps.Keys(m))
	for _, m := range more {
		all = slices.AppendSeq(all, maps.Keys(m))
	}
	slices.Sort(all)
	for _, other := range slices.Compact(all) {
		if n := min(len(name), len(other), 3); n > 0 && name[:n] == other[:n] {
			close = append(close, other)
		}
	}
	if len(close) > 0 {
		return "; did you mean " + strings.Join(close, " or ") + "?"
	}
	return ": there are " + strings.Join(slices.Compact(all), ", ")
}

const onlyEqual = "it can be compared with = and != only"

// equal makes a condition of =, or of != if that is the operator.
func equal(op string, c condition) (condition, string) {
	switch op {
	case "=":
		return c, ""
	case "!=":
		return func(p *Packet) bool { return !c(p) }, ""
	}
	return nil, onlyEqual
}

// anyOf makes a condition of a list, of which one must fit.
func anyOf(op, value string, one func(string) (condition, string)) (condition, string) {
	var list []condition
	for _, v := range strings.Split(value, ",") {
		c, reason := one(v)
		if reason != "" {
			return nil, reason
		}
		list = append(list, c)
	}
	return equal(op, func(p *Packet) bool {
		return slices.ContainsFunc(list, func(c condition) bool { return c(p) })
	})
}

func hostTest(src, dst bool) func(op, value string) (condition, string) {
	return func(op, value string) (condition, string) {
		return anyOf(op, value, func(v string) (condition, string) {
			prefix, err := netip.ParsePrefix(v)
			if err != nil {
				addr, err := netip.ParseAddr(v)
				if err != nil {
					return nil, fmt.Sprintf("%q is neither an IP address nor a prefix, such as 192.0.2.7 or 192.0.2.0/24", v)
				}
				addr = addr.WithZone("")
				prefix = netip.PrefixFrom(addr, addr.BitLen())
			}
			return func(p *Packet) bool {
				return src && prefix.Contains(p.IP.Src) || dst && prefix.Contains(p.IP.Dst)
			}, ""
		})
	}
}

// nameTest is for fields whose values have names.
func nameTest[T any](m map[string]T, test func(*Packet, T) bool) func(op, value string) (condition, string) {
	return func(op, value string) (condition, string) {
		return anyOf(op, value, func(v string) (condition, string) {
			want, ok := m[strings.ToLower(v)]
			if !ok {
				return nil, fmt.Sprintf("%q is none of %s", v, names(m))
			}
			return func(p *Packet) bool { return test(p, want) }, ""
		})
	}
}

func opcodeTest(op, value string) (condition, string) {
	return anyOf(op, value, func(v string) (condition, string) {
		var set [256]bool
		found := false
		if n, err := strconv.ParseUint(v, 0, 8); err == nil {
			set[n], found = true, true
		}
		want := strings.ToUpper(v)
		for i := range set {
			o := rocev2.Opcode(i)
			info, ok := o.Info()
			if !ok {
				continue
			}
			_, short, _ := strings.Cut(info.Name, "_")
			if want == info.Name || want == short || want == strings.TrimPrefix(short, "RDMA_") {
				set[i], found = true, true
			}
		}
		if !found {
			return nil, fmt.Sprintf("there is no opcode %q; names are such as RC_SEND_ONLY or RDMA_WRITE_FIRST", v)
		}
		return func(p *Packet) bool { return p.HasBTH && set[p.Wire.BTH.Opcode] }, ""
	})
}

func messageTest(op, value string) (condition, string) {
	const all = "REQ MRA REJ REP RTU DREQ DREP SIDR_REQ SIDR_REP LAP APR"
	return anyOf(op, value, func(v string) (condition, string) {
		want := strings.ToUpper(v)
		if !slices.Contains(strings.Fields(all), want) {
			return nil, fmt.Sprintf("%q is none of %s", v, strings.ReplaceAll(all, " ", ", "))
		}
		return func(p *Packet) bool {
			return p.Mgmt.Present && p.Mgmt.Header.Class == classCM && p.Mgmt.Name() == want
		}, ""
	})
}

func one(f func(*Packet) (uint64, bool)) func(*Packet) []uint64 {
	return func(p *Packet) []uint64 {
		if v, ok := f(p); ok {
			return []uint64{v}
		}
		return nil
	}
}

// compare returns a comparison with a value.
func compare[T cmp.Ordered](op string, want T) (func(T) bool, bool) {
	switch op {
	case "<":
		return func(v T) bool { return v < want }, true
	case "<=":
		return func(v T) bool { return v <= want }, true
	case ">":
		return func(v T) bool { return v > want }, true
	case ">=":
		return func(v T) bool { return v >= want }, true
	}
	return nil, false
}

func numberTest(get func(*Packet) []uint64) func(op, value string) (condition, string) {
	return func(op, value string) (condition, string) {
		return ordered(op, value, get, func(v string) (uint64, string) {
			n, err := strconv.ParseUint(v, 0, 64)
			if err != nil {
				return 0, fmt.Sprintf("%q is not a number, a range or a list of them, such as 17, 0x11 or 5-9", v)
			}
			return n, ""
		})
	}
}

func timeTest(get func(*Packet) (time.Duration, bool)) func(op, value string) (condition, string) {
	many := func(p *Packet) []time.Duration {
		if v, ok := get(p); ok {
			return []time.Duration{v}
		}
		return nil
	}
	return func(op, value string) (condition, string) {
		return ordered(op, value, many, func(v string) (time.Duration, string) {
			if n, err := strconv.ParseFloat(v, 64); err == nil && n >= 0 && n < 1e9 {
				return time.Duration(n * float64(time.Second)), ""
			}
			d, err := time.ParseDuration(v)
			if err != nil || d < 0 {
				return 0, fmt.Sprintf("%q is not a time, such as 1.5, 20us or 3ms", v)
			}
			return d, ""
		})
	}
}

// ordered makes a condition of values that have an order.
func ordered[T cmp.Ordered](op, value string, get func(*Packet) []T, parse func(string) (T, string)) (condition, string) {
	if op != "=" && op != "!=" {
		want, reason := parse(value)
		if reason != "" {
			return nil, reason
		}
		fits, _ := compare(op, want)
		return func(p *Packet) bool { return slices.ContainsFunc(get(p), fits) }, ""
	}
	return anyOf(op, value, func(v string) (condition, string) {
		low, high, isRange := strings.Cut(v, "-")
		if !isRange {
			high = low
		}
		from, reason := parse(low)
		if reason != "" {
			return nil, reason
		}
		to, reason := parse(high)
		if reason != "" {
			return nil, reason
		}
		if to < from {
			return nil, fmt.Sprintf("the range %s ends before it begins", v)
		}
		return func(p *Packet) bool {
			return slices.ContainsFunc(get(p), func(v T) bool { return from <= v && v <= to })
		}, ""
	})
}
