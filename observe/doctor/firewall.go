package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gosoftroce/rocev2/transport/keychannel"
	"github.com/gosoftroce/rocev2/verbs"
)

// firewall looks at the rules of nftables and iptables for what may drop
// RoCEv2. It reads them roughly: which rule a packet meets first depends on
// much that is not looked at.
func (d *checks) firewall() {
	if !d.linux("firewall", "the rules of firewalls") {
		return
	}
	var tried, read []string
	for _, c := range []struct {
		name  string
		args  []string
		parse func(string) []rule
	}{
		{"nft", []string{"-n", "list", "ruleset"}, nftRules},
		{"iptables", []string{"-S"}, iptablesRules},
		{"ip6tables", []string{"-S"}, iptablesRules},
	} {
		tried = append(tried, c.name)
		text, err := d.Output(c.name, c.args...)
		if err != nil {
			continue
		}
		read = append(read, c.name)
		command := c.name + " " + strings.Join(c.args, " ")
		for _, f := range judge(c.parse(text), d.secured) {
			f.Check, f.Subject, f.Command = "firewall", c.name, command
			d.add(f)
		}
	}
	if read == nil {
		d.add(Finding{Check: "firewall", Status: NotChecked, Text: fmt.Sprintf("no rules can be read by %s: the commands are missing, or only root may", strings.Join(tried, ", ")),
			Advice: "run doctor as root; doctor PEER finds out from outside whether packets come through"})
		return
	}
	if !slices.ContainsFunc(d.list, func(f Finding) bool { return f.Check == "firewall" }) {
		d.ok("firewall", strings.Join(read, ", "), "no rule is seen that drops UDP port %d", verbs.UDPPort)
	}
}

// rule is what a firewall does, as far as it matters here.
type rule struct {
	chain  string // that it is in
	text   string
	policy bool // it is what the chain does with what no rule has taken
	input  bool // of packets to this host
	drops  bool // or refuses
	roce   bool // it names UDP port 4791
	keys   bool // it names TCP port 4791, where hosts agree on keys
	all    bool // it names no port, protocol, state or interface
}

// judge turns rules into findings. secured says that hosts must agree on keys.
func judge(rules []rule, secured bool) (list []Finding) {
	allowed := make(map[string]bool)
	for _, r := range rules {
		switch {
		case r.keys && r.drops && secured:
			list = append(list, Finding{Status: Problem, Text: fmt.Sprintf("a rule of chain %s drops TCP port %d, where hosts agree on keys for sealed packets: %s", r.chain, keychannel.Port, r.text),
				Advice: "remove the rule, or allow the port before it: either of two hosts connects"})
		case r.roce && r.drops:
			list = append(list, Finding{Status: Problem, Text: fmt.Sprintf("a rule of chain %s drops UDP port %d: %s", r.chain, verbs.UDPPort, r.text), Advice: "remove the rule, or allow the port before it"})
		case r.roce:
			allowed[r.chain] = true
		}
	}
	for _, r := range rules {
		if r.input && r.drops && !r.roce && (r.policy || r.all) && !allowed[r.chain] {
			list = append(list, Finding{Status: Warning, Text: fmt.Sprintf("chain %s drops what no rule allows, and no rule is seen that allows UDP port %d", r.chain, verbs.UDPPort),
				Advice: "allow it from your peers"})
			allowed[r.chain] = true // said once
		}
	}
	return list
}

// iptablesRules reads what iptables -S prints.
func iptablesRules(text string) (list []rule) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		r := rule{chain: f[1], text: strings.TrimSpace(line), input: f[1] == "INPUT"}
		switch f[0] {
		case "-P":
			r.policy, r.drops = true, f[2] == "DROP"
		case "-A":
			target := after(f, "-j")
			r.drops = target == "DROP" || target == "REJECT"
			named := namesPort(after(f, "--dport"), ":") || namesPort(after(f, "--dports"), ":")
			r.roce, r.keys = named && after(f, "-p") == "udp", named && after(f, "-p") == "tcp"
			r.all = r.drops && len(f) >= 4 && f[2] == "-j"
		}
		list = append(list, r)
	}
	return list
}

// nftRules reads what nft list ruleset prints.
func nftRules(text string) (list []rule) {
	chain, input := "", false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || f[0] == "table":
		case f[0] == "chain" && len(f) > 1:
			chain, input = f[1], false
		case f[0] == "type":
			// type filter hook input priority filter; policy drop;
			input = slices.Contains(f, "hook") && after(f, "hook") == "input"
			list = append(list, rule{chain: chain, text: line, policy: true, input: input, drops: strings.Contains(line, "policy drop")})
		default:
			r := rule{chain: chain, text: line, input: input, drops: slices.Contains(f, "drop") || slices.Contains(f, "reject")}
			_, ports, found := strings.Cut(line, "udp dport ")
			r.roce = found && namesPorts(ports)
			_, ports, found = strings.Cut(line, "tcp dport ")
			r.keys = found && namesPorts(ports)
			r.all = f[0] == "drop" || f[0] == "reject" || f[0] == "counter" && !strings.Contains(line, "dport") && r.drops && len(f) <= 6
			list = append(list, r)
		}
	}
	return list
}

// namesPorts reads the port, the range or the set that begins a text of
// nftables: 4791, 4000-5000, { 53, 4791 }.
func namesPorts(s string) bool {
	if inner, found := strings.CutPrefix(s, "{"); found {
		inner, _, _ = strings.Cut(inner, "}")
		return namesPort(strings.ReplaceAll(inner, " ", ""), "-")
	}
	f := strings.Fields(s)
	return len(f) > 0 && namesPort(f[0], "-")
}

// namesPort reports whether a list of ports and ranges has the port of RoCEv2.
func namesPort(list, to string) bool {
	return inRanges(strings.ReplaceAll(list, to, "-"), verbs.UDPPort)
}

// after returns the word that follows word, "" if there is none.
func after(words []string, word string) string {
	i := slices.Index(words, word)
	if i < 0 || i+1 == len(words) {
		return ""
	}
	return words[i+1]
}
