package dissect_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/internal/captures"
	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

var update = flag.Bool("update", false, "write testdata/tshark anew, with the tshark that is installed")

const golden = "../../rocev2/testdata/golden/"

func goldenCaptures(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob(golden + "*.pcap")
	if err != nil || len(names) != 15 {
		t.Fatalf("%d golden captures, %v; want 15", len(names), err)
	}
	return names
}

// tsharkFields are all fields of tshark that Fields has, too.
var tsharkFields = strings.Fields(`
	frame.number frame.time_epoch ip.src ip.dst ip.dsfield.dscp ip.dsfield.ecn ip.id ip.flags.df ip.ttl
	ipv6.src ipv6.dst ipv6.tclass.dscp ipv6.tclass.ecn ipv6.flow ipv6.hlim udp.srcport udp.dstport udp.length
	infiniband.bth.opcode infiniband.bth.se infiniband.bth.m infiniband.bth.padcnt infiniband.bth.tver
	infiniband.bth.p_key infiniband.bth.destqp infiniband.bth.a infiniband.bth.reserved7 infiniband.bth.psn
	infiniband.deth.q_key infiniband.deth.srcqp infiniband.reth.va infiniband.reth.r_key infiniband.reth.dmalen
	infiniband.atomiceth.swapdt infiniband.atomiceth.cmpdt
	infiniband.aeth.syndrome infiniband.aeth.syndrome.reserved infiniband.aeth.syndrome.opcode
	infiniband.aeth.syndrome.credit_count infiniband.aeth.syndrome.timer infiniband.aeth.syndrome.reserved_value
	infiniband.aeth.syndrome.error_code infiniband.aeth.msn infiniband.atomicacketh.origremdt
	infiniband.immdt infiniband.ieth infiniband.invariant.crc
	infiniband.mad.baseversion infiniband.mad.mgmtclass infiniband.mad.classversion infiniband.mad.method
	infiniband.mad.status infiniband.mad.classspecific infiniband.mad.transactionid infiniband.mad.attributeid
	infiniband.mad.attributemodifier
	infiniband.cm.req infiniband.cm.req.serviceid infiniband.cm.req.localcaguid infiniband.cm.req.localqkey
	infiniband.cm.req.localqpn infiniband.cm.req.responderres infiniband.cm.req.localeecn
	infiniband.cm.req.initdepth infiniband.cm.req.remoteeecn infiniband.cm.req.remoteresptout
	infiniband.cm.req.transpsvctype infiniband.cm.req.e2eflowctrl infiniband.cm.req.startpsn
	infiniband.cm.req.localresptout infiniband.cm.req.retrcount infiniband.cm.req.pkey infiniband.cm.req.pppmtu
	infiniband.cm.req.rdcexist infiniband.cm.req.rnrretrcount infiniband.cm.req.maxcmretr infiniband.cm.req.srq
	infiniband.cm.req.ext_transport infiniband.cm.req.prim_locallid infiniband.cm.req.prim_remotelid
	infiniband.cm.req.prim_localgid infiniband.cm.req.prim_remotegid infiniband.cm.req.prim_localgid_ipv4
	infiniband.cm.req.prim_remotegid_ipv4 infiniband.cm.req.prim_flowlabel infiniband.cm.req.prim_pktrate
	infiniband.cm.req.prim_tfcclass
	infiniband.cm.req.prim_hoplim infiniband.cm.req.prim_sl infiniband.cm.req.prim_subnetlocal
	infiniband.cm.req.prim_localacktout infiniband.cm.req.private infiniband.cm.req.ip_cm.ipv
	infiniband.cm.req.ip_cm.sport infiniband.cm.req.ip_cm.sip4 infiniband.cm.req.ip_cm.dip4
	infiniband.cm.req.ip_cm.sip6 infiniband.cm.req.ip_cm.dip6 infiniband.cm.req.ip_cm.private
	infiniband.cm.rep infiniband.cm.rep.remotecommid infiniband.cm.rep.localqkey infiniband.cm.rep.localqpn
	infiniband.cm.rep.localeecn infiniband.cm.rep.startpsn infiniband.cm.rep.respres infiniband.cm.rep.initdepth
	infiniband.cm.rep.tgtackdelay infiniband.cm.rep.failoveracc infiniband.cm.rep.e2eflowctrl
	infiniband.cm.rep.rnrretrcount infiniband.cm.rep.srq infiniband.cm.rep.localcaguid infiniband.cm.rep.private
	infiniband.cm.rtu.localcommid infiniband.cm.rtu.remotecommid infiniband.cm.rtu.private
	infiniband.cm.rej.localcommid infiniband.cm.rej.remotecommid infiniband.cm.rej.msgrej
	infiniband.cm.rej.rejinfolen infiniband.cm.rej.reason infiniband.cm.rej.private
	infiniband.cm.dreq.localcommid infiniband.cm.dreq.remotecommid infiniband.cm.req.remoteqpneecn
	infiniband.cm.dreq.private
	infiniband.cm.drsp.localcommid infiniband.cm.drsp.remotecommid infiniband.cm.drsp.private`)

// differs are the fields that tshark 4.0 gets wrong.
var differs = map[string]string{
	"infiniband.cm.req.prim_pktrate":   "it takes bits of the flow label",
	"infiniband.cm.req.prim_flowlabel": "it takes 12 of the 20 bits",
}

// normal writes a value of tshark and one of Fields in the same way.
func normal(v any) string {
	switch v := v.(type) {
	case string:
		if first, second, ok := strings.Cut(v, ","); ok && first == second {
			v = first // tshark shows immediate data twice
		}
		if n, err := strconv.ParseUint(v, 0, 64); err == nil && len(v) < 20 {
			return strconv.FormatUint(n, 10)
		}
		return strings.ReplaceAll(v, ":", "")
	case bool:
		if v {
			return "1"
		}
		return "0"
	case dissect.Hex:
		return strconv.FormatUint(uint64(v), 10)
	case []byte:
		return normal(hex.EncodeToString(v))
	case netip.Addr:
		return normal(v.String())
	}
	return fmt.Sprint(v)
}

// table is what tshark shows: a row of fields for every frame.
type table struct {
	columns []string
	rows    [][]string
}

func runTshark(t *testing.T, file string) table {
	t.Helper()
	all := table{columns: tsharkFields, rows: captures.Tshark(t, file, nil, tsharkFields)}
	return all.reduced()
}

// reduced leaves out the columns that are empty.
func (t table) reduced() table {
	var out table
	var keep []int
	for i, name := range t.columns {
		if slices.ContainsFunc(t.rows, func(r []string) bool { return i < len(r) && r[i] != "" }) {
			keep = append(keep, i)
			out.columns = append(out.columns, name)
		}
	}
	for _, r := range t.rows {
		var row []string
		for _, i := range keep {
			row = append(row, r[i])
		}
		out.rows = append(out.rows, row)
	}
	return out
}

func (t table) write(file string) error {
	var b bytes.Buffer
	fmt.Fprintln(&b, strings.Join(t.columns, "\t"))
	for _, r := range t.rows {
		fmt.Fprintln(&b, strings.Join(r, "\t"))
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

func readTable(t *testing.T, file string) (all table) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if all.columns == nil {
			all.columns = cells
		} else {
			all.rows = append(all.rows, cells)
		}
	}
	return all
}

// fieldsOf returns the fields of every packet of a capture.
func fieldsOf(t *testing.T, file string) (all []map[string]any) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := dissect.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packets(t, c) {
		m := map[string]any{}
		for _, f := range p.fields {
			if _, twice := m[f.Name]; twice {
				t.Errorf("frame %d has %s twice", p.number, f.Name)
			}
			m[f.Name] = f.Value
		}
		all = append(all, m)
	}
	return all
}

// agree compares every field of every frame, in both directions: what one has
// and the other has not is a difference, too.
func agree(t *testing.T, want table, got []map[string]any) {
	t.Helper()
	if len(got) != len(want.rows) {
		t.Fatalf("%d packets, tshark has %d frames", len(got), len(want.rows))
	}
	compared := 0
	for i, row := range want.rows {
		seen := map[string]bool{}
		for j, name := range want.columns {
			if row[j] == "" {
				continue
			}
			seen[name] = true
			if differs[name] != "" {
				continue
			}
			compared++
			v, ok := got[i][name]
			if !ok || normal(v) != normal(row[j]) {
				t.Errorf("frame %d: %s is %v, tshark shows %s", i+1, name, v, row[j])
			}
		}
		for name := range got[i] {
			if name == "infiniband.invariant.crc" && got[i]["infiniband.bth.opcode"] == uint64(rocev2.CNP) {
				continue // tshark 4.0 takes it for reserved bytes
			}
			if slices.Contains(tsharkFields, name) && !seen[name] {
				t.Errorf("frame %d: tshark has no %s", i+1, name)
			}
		}
	}
	if compared < 15*len(got) {
		t.Errorf("compared %d fields of %d packets: too few to mean anything", compared, len(got))
	}
}

func tableFile(capture string) string {
	return filepath.Join("testdata/tshark", strings.TrimSuffix(filepath.Base(capture), ".pcap")+".tsv")
}

// All fields of all golden captures are what tshark shows. What it showed is
// in testdata; regenerate it with -update.
func TestFieldsAgreeWithTshark(t *testing.T) {
	t.Parallel()
	for _, name := range goldenCaptures(t) {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".pcap"), func(t *testing.T) {
			t.Parallel()
			if *update {
				if err := runTshark(t, name).write(tableFile(name)); err != nil {
					t.Fatal(err)
				}
			}
			agree(t, readTable(t, tableFile(name)), fieldsOf(t, name))
		})
	}
}

// The tshark that is installed shows the same as the one that testdata is from.
func TestFieldsAgreeWithTsharkInstalled(t *testing.T) {
	t.Parallel()
	for _, name := range goldenCaptures(t) {
		agree(t, runTshark(t, name), fieldsOf(t, name))
	}
}

// What the golden captures do not have: NAKs, CNPs, IPv6 with VLAN, requests
// for atomics and refusals of connection management.
func TestOtherFieldsAgreeWithTshark(t *testing.T) {
	t.Parallel()
	c := scenario()
	c.mad(hostA, hostB, &mad.REJ{LocalID: 3, RemoteID: 9, Message: mad.StageREP, Reason: mad.ReasonConsumer, ARI: []byte{1, 2}})
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendLastInv, PKey: 0x7fff, DestQPN: 5, PSN: 6, Solicited: true, AckReq: true, MigReq: true}, Payload: []byte("12345")}
	ip := datagram(six1, six2, 0, seal(six1, six2, 0, &p))
	c.add(dissect.LinkEthernet, slices.Concat(make([]byte, 12), []byte{0x81, 0, 0x20, 100, 0x86, 0xdd}, ip))
	file := filepath.Join(t.TempDir(), "all.pcapng")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := dissect.NewWriter(f)
	for i := range c.frames {
		if err := w.Write(&c.frames[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
	agree(t, runTshark(t, file), fieldsOf(t, file))
}

// The comparison notices what is wrong.
func TestAgreementCanFail(t *testing.T) {
	t.Parallel()
	for tshark, own := range map[string]any{
		"0x0010": uint64(17), "198.18.0.4": netip.MustParseAddr("198.18.0.5"), "0001": []byte{0, 2}, "1": false,
		"0x00000002ba83e80b": dissect.Hex(1),
	} {
		if normal(tshark) == normal(own) {
			t.Errorf("%v passes for %v", own, tshark)
		}
	}
}
