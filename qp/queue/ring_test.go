package queue

import "testing"

func TestRingSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{0: 0, 1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 128: 128, 129: 256} {
		if got := RingSize(n); got != want {
			t.Errorf("RingSize(%d) = %d, want %d", n, got, want)
		}
	}
}
