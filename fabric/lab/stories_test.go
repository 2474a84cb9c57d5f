package lab

import (
	"strings"
	"testing"
)

// story plays a scenario of the package with some settings, and returns the
// result in numbers.
func story(t *testing.T, name string, settings ...[2]string) Summary {
	t.Helper()
	text, err := Text(name)
	for _, kv := range settings {
		if err == nil {
			text, err = Set(text, kv[0], kv[1])
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return play(t, s).Summary()
}

// Each rank of a ring waits for the one before it, so one adapter has all of
// them go at its rate. 64 ranks take 126 steps of a 64th of 4 MiB, in packets
// of 4096 bytes that take 4178 on the wire.
func TestStoryOfASlowAdapter(t *testing.T) {
	t.Parallel()
	const bits = 126 * (4 << 20) / 64 / 4096 * 4178 * 8
	twice := [2]string{"traffic.0.iterations", "2"}
	slow := story(t, "slow-nic", twice).Traffic[0].Iterations[0]
	sound := story(t, "slow-nic", twice, [2]string{"failure.0.rate", "100Gb/s"}).Traffic[0].Iterations[0]
	if least := bits / 25e3; slow < least || slow > 1.5*least {
		t.Errorf("with an adapter of 25 Gb/s: %.0f us, and the cable takes %.0f", slow, least)
	}
	if least := bits / 100e3; sound < least || sound > 1.6*least {
		t.Errorf("with 100 Gb/s: %.0f us, and the cables take %.0f", sound, least)
	}
}

// A cable that flaps costs both tenants, and the weights of the classes say
// which one.
func TestStoryOfAFlap(t *testing.T) {
	t.Parallel()
	flaps := story(t, "flap")
	sound := story(t, "flap", [2]string{"failure.0.kind", "loss"}, [2]string{"failure.0.loss", "1e-9"})
	fair := story(t, "flap", [2]string{"network.class.0.weight", "50"})
	if flaps.Dropped == 0 || sound.Dropped != 0 || flaps.Failed+flaps.Unfinished > 0 {
		t.Errorf("dropped: %d, without flaps %d; %d flows have failed, %d hang", flaps.Dropped, sound.Dropped, flaps.Failed, flaps.Unfinished)
	}
	for i := range flaps.Traffic {
		if a, b := flaps.Traffic[i].LastUs, sound.Traffic[i].LastUs; a <= b {
			t.Errorf("%s ends at %.0f us, and at %.0f without flaps", flaps.Traffic[i].Name, a, b)
		}
	}
	if a, b := flaps.Traffic[1].Slowdown.Mean, fair.Traffic[1].Slowdown.Mean; a <= b {
		t.Errorf("storage is slowed down %.2f times with a weight of 10, %.2f with 50", a, b)
	}
}

// Over a long way a window divided by the round trip bounds what a flow gets.
// To peers that go back it is 128 packets, whatever the setting says.
func TestStoryOfALongWay(t *testing.T) {
	t.Parallel()
	const (
		trip = 20_000.0                       // µs
		wire = (256 << 20) / 4096 * 4178 * 8. // bits
	)
	sound := story(t, "wan", [2]string{"network.loss", "1e-9"}).LastUs
	if want := wire/400e3 + trip; sound < want*.99 || sound > want*1.01 {
		t.Errorf("without losses: %.0f us, want %.0f", sound, want)
	}
	if lossy := story(t, "wan").LastUs; lossy < sound+trip || lossy > sound+6*trip {
		t.Errorf("with losses: %.0f us, and %.0f without", lossy, sound)
	}
	if back := story(t, "wan", [2]string{"adapter.recovery", "go-back-n"}).LastUs; back < 512*trip*.99 || back > 512*trip*1.2 {
		t.Errorf("128 packets in a round trip of 20 ms: %.0f us", back)
	}
}

// One iteration has no time between two.
func TestComputeOfOneIteration(t *testing.T) {
	t.Parallel()
	text, err := Text("slow-nic")
	if err == nil {
		text, err = Set(text, "traffic.0.iterations", "1")
	}
	if err != nil {
		t.Fatal(err)
	}
	if s, err := Parse(text); err == nil {
		_, err = Run(t.Context(), s)
		if err == nil || !strings.Contains(err.Error(), "2 or more") {
			t.Errorf("compute with one iteration: %v", err)
		}
	} else if !strings.Contains(err.Error(), "2 or more") {
		t.Errorf("compute with one iteration: %v", err)
	}
}
