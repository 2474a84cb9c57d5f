package rocev2

import (
	"fmt"
	"strings"
	"testing"
)

// opcodeLengths is the length of BTH and extended headers, written out from
// IBTA 9.2.1, A14, A17 and A19 independently of the table under test.
var opcodeLengths = map[Opcode]int{
	0x00: 12, 0x01: 12, 0x02: 12, 0x03: 16, 0x04: 12, 0x05: 16, 0x06: 28, 0x07: 12, 0x08: 12, 0x09: 16, 0x0a: 28,
	0x0b: 32, 0x0c: 28, 0x0d: 16, 0x0e: 12, 0x0f: 16, 0x10: 16, 0x11: 16, 0x12: 24, 0x13: 40, 0x14: 40, 0x16: 16,
	0x17: 16, 0x1c: 32, 0x1d: 28,
	0x20: 12, 0x21: 12, 0x22: 12, 0x23: 16, 0x24: 12, 0x25: 16, 0x26: 28, 0x27: 12, 0x28: 12, 0x29: 16, 0x2a: 28,
	0x2b: 32,
	0x64: 20, 0x65: 24,
	0x81: 28,
	0xa0: 16, 0xa1: 16, 0xa2: 16, 0xa3: 20, 0xa4: 16, 0xa5: 20, 0xa6: 32, 0xa7: 16, 0xa8: 16, 0xa9: 20, 0xaa: 32,
	0xab: 36, 0xac: 32, 0xad: 16, 0xae: 12, 0xaf: 16, 0xb0: 16, 0xb1: 16, 0xb2: 24, 0xb3: 44, 0xb4: 44, 0xb6: 20,
	0xb7: 20, 0xbc: 36, 0xbd: 32,
	0xd1: 16, // of this software
}

// The table agrees with the names of IBTA 9.2.1, A14, A17 and A19.
func TestOpcodeTable(t *testing.T) {
	t.Parallel()
	names := map[string]Opcode{}
	for i := range 256 {
		o := Opcode(i)
		info, ok := o.Info()
		length, known := opcodeLengths[o]
		if ok != known {
			t.Errorf("%#x: known %t, want %t", i, ok, known)
			continue
		}
		if !ok {
			if want := fmt.Sprintf("opcode 0x%02x", i); o.String() != want {
				t.Errorf("%#x: String() = %q, want %q", i, o, want)
			}
			if info == nil || info.HeaderLen != 0 {
				t.Errorf("%#x: Info() = %v, want an empty one", i, info)
			}
			continue
		}
		if info.HeaderLen != length {
			t.Errorf("%v: %d bytes of headers, want %d", o, info.HeaderLen, length)
		}
		if other, dup := names[info.Name]; dup {
			t.Errorf("%#x and %#x are both %s", i, other, info.Name)
		}
		names[info.Name] = o
		if info.Service != o.Service() || !strings.HasPrefix(info.Name, info.Service.String()) {
			t.Errorf("%v: service %v, by its bits %v", o, info.Service, o.Service())
		}
		checkNameAgainstInfo(t, info)
	}
}

// checkNameAgainstInfo holds the fields of an opcode against what its name
// says.
func checkNameAgainstInfo(t *testing.T, info *OpcodeInfo) {
	t.Helper()
	has := func(part string) bool { return strings.Contains(info.Name+"_", "_"+part+"_") }
	positioned := has("FIRST") || has("MIDDLE") || has("LAST") || has("ONLY")
	if want := !positioned || has("FIRST") || has("ONLY"); info.First != want {
		t.Errorf("%s: first %t", info.Name, info.First)
	}
	if want := !positioned || has("LAST") || has("ONLY"); info.Last != want {
		t.Errorf("%s: last %t", info.Name, info.Last)
	}
	if info.WithImm != has("IMMEDIATE") || info.WithInv != has("INVALIDATE") {
		t.Errorf("%s: immediate %t, invalidate %t", info.Name, info.WithImm, info.WithInv)
	}
	if info.Service != ServiceCNP && !strings.Contains(info.Name, "_"+info.Operation.String()) {
		t.Errorf("%s: operation %v", info.Name, info.Operation)
	}
	role := RoleRequest
	switch {
	case has("RESPONSE") || has("ACKNOWLEDGE"):
		role = RoleResponse
	case info.Service == ServiceCNP:
		role = RoleNotify
	}
	if info.Role != role {
		t.Errorf("%s: role %d, want %d", info.Name, info.Role, role)
	}
	if want := info.Service == ServiceXRC && role == RoleRequest; info.Headers.Has(HasXRCETH) != want {
		t.Errorf("%s: XRCETH %t", info.Name, !want)
	}
	payload := PayloadNone
	switch info.Operation {
	case OpSend, OpWrite, OpReadResponse:
		switch {
		case info.First && info.Last:
			payload = PayloadAny
		case info.Last:
			payload = PayloadNonEmpty
		default:
			payload = PayloadMTU
		}
	case OpSelectiveAck:
		payload = PayloadAny
	case OpAtomicWrite:
		payload = PayloadEight
	}
	if info.Payload != payload {
		t.Errorf("%s: payload rule %d, want %d", info.Name, info.Payload, payload)
	}
}

// A first or middle packet has exactly the path MTU, a last packet at least one
// byte, an only packet may be empty (IBTA 9.7.4.1.6).
func TestPayloadRules(t *testing.T) {
	t.Parallel()
	tests := []struct {
		rule PayloadRule
		ok   []int
		bad  []int
	}{
		{PayloadNone, []int{0}, []int{-1, 1, 256}},
		{PayloadMTU, []int{1024}, []int{0, 1, 1023, 1025}},
		{PayloadNonEmpty, []int{1, 5, 1024}, []int{0, 1025}},
		{PayloadAny, []int{0, 1, 1024}, []int{-1, 1025}},
		{PayloadEight, []int{8}, []int{0, 4, 7, 9, 12}},
		{PayloadRule(99), nil, []int{0, 8}},
	}
	for _, tt := range tests {
		for _, n := range tt.ok {
			if !tt.rule.Allows(n, MTU1024.Bytes()) {
				t.Errorf("rule %d does not allow %d bytes", tt.rule, n)
			}
		}
		for _, n := range tt.bad {
			if tt.rule.Allows(n, MTU1024.Bytes()) {
				t.Errorf("rule %d allows %d bytes", tt.rule, n)
			}
		}
	}
}

func TestUnknownNames(t *testing.T) {
	t.Parallel()
	if got := Service(7).String(); got != "service 7" {
		t.Errorf("Service(7).String() = %q", got)
	}
	if got := Operation(0).String(); got != "operation 0" {
		t.Errorf("Operation(0).String() = %q", got)
	}
	if got := Operation(200).String(); got != "operation 200" {
		t.Errorf("Operation(200).String() = %q", got)
	}
}
