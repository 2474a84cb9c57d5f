package tracefile

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// units has numbers of picoseconds and bytes with a letter after it.
var units = Units{
	Time: func(text string) (int64, error) {
		n, err := strconv.ParseInt(strings.TrimSuffix(text, "p"), 10, 64)
		return n, err
	},
	Bytes: func(text string) (int64, error) {
		return 0, errors.New("no size")
	},
}

func TestCSV(t *testing.T) {
	t.Parallel()
	f, err := CSV("from,to,bytes,start,op,src_port,class\n# comment\n0,1,5,7p,read,50000,storage\n 2,3,1,0p,,,\n", units, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Flow{
		{Line: 3, Dst: 1, Bytes: 5, Start: 7, Op: "read", SrcPort: 50000, Class: "storage", Group: -1, After: -1, SendDone: -1, RecvDone: -1},
		{Line: 4, Src: 2, Dst: 3, Bytes: 1, Group: -1, After: -1, SendDone: -1, RecvDone: -1},
	}
	if !reflect.DeepEqual(f.Flows, want) {
		t.Errorf("%+v", f.Flows)
	}
}

// The file that HPCC's simulator comes with says 2, and has more lines.
func TestNS3(t *testing.T) {
	t.Parallel()
	f, err := NS3("2\n2 1 3 100 200000000 2\n3 1 0 100 150 2.000000001\n4 1 3 100 150 2\nno flow\n", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Flow{
		{Line: 2, Src: 2, Dst: 1, Bytes: 200000000, Start: 2e12, Group: 3, After: -1, SendDone: -1, RecvDone: -1},
		{Line: 3, Src: 3, Dst: 1, Bytes: 150, Start: 2e12 + 1000, Group: 0, After: -1, SendDone: -1, RecvDone: -1},
	}
	if !reflect.DeepEqual(f.Flows, want) {
		t.Errorf("%+v", f.Flows)
	}
}

const matrix = `# comment
Nodes 4
Connections 4
Triggers 2
1->0 id 1 start 0 size 2000 send_done_trigger 7
2->0 id 2 start 1500000.5 size 2000 prio 3 recv_done_trigger 7
3->0 id 3 trigger 7 size 100 recv_done_trigger 8
0->3 id 4 trigger 8 size 0
trigger id 7 barrier count 2
trigger id 8 oneshot
`

func TestHTSim(t *testing.T) {
	t.Parallel()
	f, err := HTSim(matrix, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := &File{Nodes: 4, Flows: []Flow{
		{Line: 5, Src: 1, Bytes: 2000, Group: -1, After: -1, SendDone: 0, RecvDone: -1},
		{Line: 6, Src: 2, Bytes: 2000, Start: 1500001, Group: -1, After: -1, SendDone: -1, RecvDone: 0},
		{Line: 7, Src: 3, Bytes: 100, Group: -1, After: 0, SendDone: -1, RecvDone: 1},
		{Line: 8, Dst: 3, Group: -1, After: 1, SendDone: -1, RecvDone: -1},
	}, Triggers: []Trigger{{Line: 9, ID: 7, Kind: Barrier, Count: 2, Flows: []int{2}}, {Line: 10, ID: 8, Kind: OneShot, Flows: []int{3}}}}
	if !reflect.DeepEqual(f, want) {
		t.Errorf("%+v", f)
	}
}

// Every mistake is told with its line, the first of them together.
func TestMistakes(t *testing.T) {
	t.Parallel()
	csv := func(s string) (*File, error) { return CSV(s, units, Limits{Flows: 4}) }
	ns3 := func(s string) (*File, error) { return NS3(s, Limits{Flows: 4, Bytes: 1000}) }
	htsim := func(s string) (*File, error) { return HTSim(s, Limits{Flows: 4}) }
	const header = "Connections 1\n"
	for _, c := range []struct {
		read       func(string) (*File, error)
		text, want string
	}{
		{csv, "", "names of its columns"},
		{csv, "from,to,bytes\n", "no flow in it"},
		{csv, "from,to,bytes\n0,0,1\nx,1,1\n0,1,-1\n", "line 2: from host 0 to itself\nline 3: from: \"x\" is no whole number\nline 4: bytes is -1"},
		{csv, "from,to,bytes\n0,1,1\n0,1,1\n0,1,1\n0,1,1\n0,1,1\n", "more than 4 flows"},
		{csv, "from,to,bytes,src_port\n0,1,1,65536\n", "line 2: src_port"},
		{csv, "from,to,bytes,start\n0,1,1,9223372036854775807p\n", "line 2: it starts at"},
		{ns3, "", "no flow in it"},
		{ns3, "x\n", "line 1: a list begins with the number"},
		{ns3, "5\n", "1 to 4"},
		{ns3, "0\n", "1 to 4"},
		{ns3, "2\n1 2 3 4 5 6\n", "line 2: the list ends after 1 flows of 2"},
		{ns3, "2\n1 2 3 4 5\n1 2 8 4 5 6\n1 2 3 4 x 6\n", "line 2: a flow has 6 numbers"},
		{ns3, "2\n1 2 8 4 5 6\n1 2 3 4 x 6\n", "line 2: priority group: 8 is above 7\nline 3: bytes: \"x\""},
		{ns3, "1\n1 2 3 4 1001 6\n", "line 2: bytes is 1001: a flow has 1 to 1000"},
		{ns3, "1\n1 2 3 4 5 1e999999999\n", "is no number"},
		{ns3, "1\n1 2 3 4 5 1e99\n", "out of range"},
		{ns3, "1\n1 2 3 4 5 -1\n", "out of range"},
		{ns3, "1\n1 2 3 4 5 1/3\n", "is no number"},
		{htsim, "", "no connection in it"},
		{htsim, "Connections 2\n0->1 start 0 size 1\n", "Connections says 2, and there are 1"},
		{htsim, "Nodes 2\n0->2 start 0 size 1\n", "line 2: 0->2: there are 2 nodes"},
		{htsim, "0->1 size 1\n", "line 1: it has neither"},
		{htsim, "0->1 size 1 start 0 trigger 4\n", "line 1: it has a start and a trigger"},
		{htsim, header + "0->1 size 1 trigger 4\n", "line 2: trigger 4 is nowhere described"},
		{htsim, "0->1 start 0 size 1 x 1\n", "line 1: \"x\" is not known"},
		{htsim, "0->1 start 0 size\n", "line 1: size has no number"},
		{htsim, "0->1 start 0 size 1.5\n", "line 1: size"},
		{htsim, "a->1 start 0 size 1\n", "line 1: \"a->1\" is no connection"},
		{htsim, "0->1 start 0 size 0 send_done_trigger 2\ntrigger id 2 oneshot\n", "activates no trigger"},
		{htsim, "0->1 start 0 size 1 addon\n", "addon"},
		{htsim, "0->1 start 0 size 1\nfailure switch_type TOR\n", "line 2: a failure of a link"},
		{htsim, "0->1 start 0 size 1\nnonsense\n", "line 2: \"nonsense\""},
		{htsim, "0->1 start 0 size 1\ntrigger id 0 oneshot\n", "line 2: a trigger has an id"},
		{htsim, "0->1 start 0 size 1\ntrigger id 1 oneshot barrier\n", "is one of oneshot"},
		{htsim, "0->1 start 0 size 1\ntrigger id 1 barrier\n", "a barrier has a count"},
		{htsim, "0->1 start 0 size 1\ntrigger id 1 oneshot\ntrigger id 1 oneshot\n", "line 3: trigger 1 is there twice"},
		{htsim, strings.Repeat("0->1 start 0 size 1\n", 9), "line 5: there are more than 4"},
		{htsim, strings.Repeat("0->0 start 0 size 1\n", 4) + strings.Repeat("x\n", 20), "and 14 more mistakes"},
	} {
		if _, err := c.read(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v; want %q", c.text, err, c.want)
		}
	}
}

// Whatever a file has, it is read or refused, and what is read is in bounds.
func FuzzFiles(f *testing.F) {
	f.Add("from,to,bytes,start\n0,1,5,7p\n")
	f.Add("2\n2 1 3 100 200000000 2\n3 1 3 100 150 2.5e-3\n")
	f.Add(matrix)
	f.Fuzz(func(t *testing.T, text string) {
		l := Limits{Flows: 100, Bytes: 1000, Start: 1e12}
		for _, read := range []func() (*File, error){
			func() (*File, error) { return CSV(text, units, l) },
			func() (*File, error) { return NS3(text, l) },
			func() (*File, error) { return HTSim(text, l) },
		} {
			got, err := read()
			if err != nil {
				continue
			}
			if len(got.Flows) == 0 || len(got.Flows) > l.Flows {
				t.Errorf("%d flows", len(got.Flows))
			}
			for i, k := range got.Flows {
				if k.Src < 0 || k.Dst < 0 || k.Src == k.Dst || k.Bytes < 0 || k.Bytes > l.Bytes || k.Start < 0 || k.Start > l.Start {
					t.Errorf("flow %d is %+v", i, k)
				}
				for _, at := range []int{k.After, k.SendDone, k.RecvDone} {
					if at < -1 || at >= len(got.Triggers) {
						t.Errorf("flow %d names trigger %d of %d", i, at, len(got.Triggers))
					}
				}
			}
			for _, k := range got.Triggers {
				if k.Count < 0 || k.Kind == Barrier && k.Count == 0 {
					t.Errorf("trigger %+v", k)
				}
			}
		}
	})
}
