package lab

import (
	"strings"
	"testing"
)

const scaleUp = `
limit = "100ms"
[network]
topology = "rails"
machines = 4
gpus = 8
rate = "400Gb/s"
spines = 4
scale_up_rate = "3600Gb/s"
scale_up_delay = "500ns"
[adapter]
control = "swift"
[[traffic]]
kind = "hierarchical"
group = 8
bytes = "16MiB"
`

// A hierarchical all-reduce of B bytes by m machines of g GPUs has each GPU
// send 2·B·(g-1)/g inside of its machine, and 2·(B/g)·(m-1)/m on its rail. It
// takes as long as these two take on their cables, one after the other, and
// what the latencies of its rounds are.
func TestScaleUpCarriesThePhasesInside(t *testing.T) {
	t.Parallel()
	const (
		machines, gpus = 4, 8
		all            = 16 << 20
		inside         = 2 * all * (gpus - 1) / gpus
		rail           = 2 * all / gpus * (machines - 1) / machines
		wire           = 4178. / 4096
	)
	s := parsed(t, scaleUp)
	s.Output.Record = true
	r := play(t, s)
	var sent [2]float64 // bytes of all GPUs: on rails, inside
	for _, p := range r.Ports {
		if r.graph.IsBond(int32(p.Node)) && p.Peer >= r.Hosts {
			i := 0
			if p.Rate == 3600*Gbps {
				i = 1
			}
			sent[i] += float64(p.Bytes)
		}
	}
	for i, want := range []float64{rail * wire, inside * wire} {
		want *= machines * gpus
		if got := sent[i]; got < want || got > 1.03*want { // acknowledgements go there, too
			t.Errorf("network %d: %.0f bytes were sent, want %.0f", i, got, want)
		}
	}
	least := inside*wire*8/3600e3 + rail*wire*8/400e3 // µs
	_, _, last := r.Done()
	// 2·7 rounds inside, with 4 cables there and back, and 2·3 on rails.
	const latency = 14*4*.5 + 6*4*1 + 20*1.5
	if took := last.us(); took < least || took > least+latency {
		t.Errorf("it takes %.1f us, the cables alone %.1f, latencies up to %.1f", took, least, latency)
	}
	// Without the network inside all of it goes by the cables of adapters.
	s.Network.ScaleUp = ScaleUp{}
	if _, _, slow := play(t, s).Done(); slow.us() < (inside+rail)*wire*8/400e3 {
		t.Errorf("without the network inside it takes %v", slow)
	}
	s.Network.ScaleUpRate, s.Cores = 3600*Gbps, 3
	s.Network.ScaleUpDelay = 500_000
	if again := play(t, s); again.Digest != r.Digest {
		t.Errorf("digest %x, with three cores %x", r.Digest, again.Digest)
	}
}

// Congestion control that knows the rate of its port has that of the cable that
// a path begins with, and load is asked of the adapter's.
func TestScaleUpRates(t *testing.T) {
	t.Parallel()
	for _, control := range []string{"timely", "hpcc", "window"} {
		s := parsed(t, strings.Split(scaleUp, "[adapter]")[0]+"[[traffic]]\nkind = \"flow\"\nto = 1\n[[traffic]]\nkind = \"flow\"\nfrom = 2\nto = 10\n[[traffic]]\nkind = \"flow\"\nfrom = 16\nto = 9\n")
		s.Limit, s.Until, s.Warm, s.Adapter.Control = 0, 400*us, 200*us, control
		r := play(t, s)
		for i, cable := range []Rate{3600 * Gbps, 400 * Gbps, 400 * Gbps} {
			if got := r.Traffics()[i].Rate; got < cable*80/100 || got > cable {
				t.Errorf("%s, flow %d: %v over a cable of %v", control, i, got, cable)
			}
		}
	}
	s := parsed(t, strings.Split(scaleUp, "[adapter]")[0]+"[[traffic]]\nkind = \"load\"\nbytes = \"100KB\"\nload = 0.5\nuntil = \"200us\"\n")
	sum := int64(0)
	for _, f := range play(t, s).Flows {
		sum += f.Bytes
	}
	if want := .5 * 400e9 / 8 * 200e-6 * 32; float64(sum) < .8*want || float64(sum) > 1.2*want {
		t.Errorf("%d bytes arrive at half of the adapters' rate, want %.0f", sum, want)
	}
}

// What is wrong is said by its name.
func TestScaleUpRefuses(t *testing.T) {
	t.Parallel()
	for change, want := range map[string]string{
		`scale_up_rate = "8Tb/s"`:                            "network.scale_up_rate is 8Tb/s: it is 1Mb/s to 7.9Tb/s",
		`scale_up_rate = "1kb/s"`:                            "network.scale_up_rate is 1kb/s",
		"scale_up_rate = \"1Tb/s\"\nscale_up_delay = \"2s\"": "network.scale_up_delay is 2s",
		`scale_up_delay = "1us"`:                             "scale_up_delay is for scale_up_rate",
		`scale_up_rate = "NaNGb/s"`:                          "like \"100Gb/s\"",
		"scale_up_rate = \"1Tb/s\"\ngpus = 1":                "one GPU has no network inside",
		"scale_up_rate = \"1Tb/s\"\ntopology = \"star\"":     "network, star: it has no scale_up_rate",
	} {
		text := "until = \"1ms\"\n[network]\n" + change + "\n"
		for _, d := range []string{"topology = \"rails\"", "gpus = 2", "machines = 2"} {
			if name, _, _ := strings.Cut(d, " "); !strings.Contains(change, name) && (name == "topology" || !strings.Contains(change, "star")) {
				text += d + "\n"
			}
		}
		s, err := Parse([]byte(text + "[[traffic]]\nkind = \"permutation\"\n"))
		if err == nil {
			err = Check(s)
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: %v; it should say %q", change, err, want)
		}
	}
}
