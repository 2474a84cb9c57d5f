package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TCP takes from RoCE what the weights of classes give it. In the class of RoCE
// it takes more, unless it answers marks. The table of the manual is what comes
// out.
func TestStoryOfTCP(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "fabric-stories.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]Summary{}
	for name, settings := range map[string][][2]string{
		"`reno`, its own class, 50 to 50":  nil,
		"`reno`, its own class, 50 to 10":  {{"network.class.0.weight", "10"}},
		"`reno`, the class of RoCE":        {{"traffic.1.dscp", "26"}},
		"`dctcp`, its own class, 50 to 50": {{"traffic.1.control", "dctcp"}},
		"`dctcp`, the class of RoCE":       {{"traffic.1.control", "dctcp"}, {"traffic.1.dscp", "26"}},
	} {
		s := story(t, "beside-tcp", settings...)
		roce, tcp := s.Traffic[0].Slowdown, s.Traffic[1].Slowdown
		dropped := fmt.Sprint(s.Dropped)
		if len(dropped) > 3 {
			dropped = dropped[:len(dropped)-3] + "," + dropped[len(dropped)-3:]
		}
		row := fmt.Sprintf("| %s | %.2f | %.1f | %.1f | %.0f | %s |\n", name, roce.Mean, roce.P99, tcp.P50, tcp.P99, dropped)
		if !strings.Contains(string(manual), row) {
			t.Errorf("docs/fabric-stories.md has no line\n%s", row)
		}
		if s.Retransmits != 0 || s.Failed+s.Unfinished > 0 {
			t.Errorf("%s: RoCE has sent %d packets again, %d flows hang", name, s.Retransmits, s.Failed+s.Unfinished)
		}
		all[name] = s
	}
	mean := func(name string) float64 { return all[name].Traffic[0].Slowdown.Mean }
	if mean("`reno`, the class of RoCE") < 1.5*mean("`reno`, its own class, 50 to 50") || mean("`dctcp`, the class of RoCE") > mean("`reno`, its own class, 50 to 50") {
		t.Error("the story is another one")
	}
	text, err := Text("beside-tcp")
	if err != nil {
		t.Fatal(err)
	}
	s := parsed(t, string(text))
	s.Traffic = s.Traffic[:1]
	alone := play(t, s).Summary().Slowdown
	if row := fmt.Sprintf("| none | %.2f | %.1f | | | |\n", alone.Mean, alone.P99); !strings.Contains(string(manual), row) {
		t.Errorf("docs/fabric-stories.md has no line\n%s", row)
	}
}
