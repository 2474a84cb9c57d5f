package event

import (
	"testing"
	"time"
)

// Mix over the multiples of the golden ratio is splitmix64; the numbers are
// those of its authors' code for the seed 1234567.
func TestSplitmix(t *testing.T) {
	t.Parallel()
	r := Rand{1234567}
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		if got := r.Uint64(); got != want {
			t.Errorf("number %d is %d, want %d", i, got, want)
		}
	}
}

func TestUint64nIsUniform(t *testing.T) {
	t.Parallel()
	r := NewRand(7, 7)
	for _, n := range []uint64{1, 2, 3, 7, 10} {
		count := make([]int, n)
		const draws = 100_000
		for range draws {
			count[r.Uint64n(n)]++
		}
		for v, c := range count {
			if want := draws / int(n); c < want*95/100 || c > want*105/100 {
				t.Errorf("%d of %d draws below %d are %d, want about %d", c, draws, n, v, want)
			}
		}
	}
	if got := r.Uint64n(0); got != 0 {
		t.Errorf("a number below 0 is %d", got)
	}
	// Of n = 2^64 * 2/3 a plain multiplication would give even numbers
	// twice as often.
	const n = 1<<63 + 1<<62
	odd := 0
	for range 100_000 {
		odd += int(r.Uint64n(n) / (n / 2))
	}
	if odd < 49_000 || odd > 51_000 {
		t.Errorf("%d of 100,000 numbers are in the upper half", odd)
	}
}

func TestStreamsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[uint64]bool{}
	for seed := range uint64(100) {
		for stream := range uint64(100) {
			r := NewRand(seed, stream)
			seen[r.Uint64()] = true
		}
	}
	if len(seen) != 10_000 {
		t.Errorf("%d different first numbers of 10,000 streams", len(seen))
	}
}

// The digest sees the order, and words of zero.
func TestDigest(t *testing.T) {
	t.Parallel()
	sum := func(words ...uint64) uint64 {
		var d Digest
		for _, w := range words {
			d.Add(w)
		}
		return d.Sum()
	}
	if sum(1, 2) == sum(2, 1) || sum(1) == sum(1, 0) || sum(0) == sum(0, 0) {
		t.Error("two lists of words have one digest")
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	for at, want := range map[Time]string{
		0: "0ps", 20: "20ps", 1500: "1.5ns", 3 * Microsecond: "3us", 20 * Millisecond: "20ms", 2 * Second: "2s",
		-4 * Second: "-4s", Never: "never",
	} {
		if got := at.String(); got != want {
			t.Errorf("%d ps is %q, want %q", int64(at), got, want)
		}
	}
	if got := Of(3 * time.Millisecond); got != 3*Millisecond || got.Duration() != 3*time.Millisecond {
		t.Errorf("3 ms are %v", got)
	}
}
