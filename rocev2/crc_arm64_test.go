//go:build !portable

package rocev2

import (
	"math/rand/v2"
	"testing"
)

// kernels are the ways that this machine has.
func kernels() map[string]func(r uint32, b []byte) uint32 {
	m := map[string]func(r uint32, b []byte) uint32{}
	for w, name := range wayNames {
		if !w.can() {
			continue
		}
		m[name] = func(r uint32, b []byte) uint32 {
			if len(b) < shortest {
				return chain(r, &b[0], len(b))
			}
			return w.update(r, b)
		}
	}
	return m
}

var wayNames = map[way]string{
	wayChain: "chain", wayChains: "chains", wayFold: "fold", wayFold3: "fold3", wayBoth: "both",
}

func TestWaysHaveNames(t *testing.T) {
	t.Parallel()
	if len(wayNames) != int(ways) {
		t.Errorf("%d of %d ways have a name, and are tested", len(wayNames), ways)
	}
}

// A class has the lengths from where it begins to the next one.
func TestClass(t *testing.T) {
	t.Parallel()
	want := 0
	for n := shortest; n <= 70000; n += 4 {
		if want+1 < len(classLens) && n == classLens[want+1] {
			want++
		}
		if got := class(n); got != want {
			t.Fatalf("%d bytes are of class %d, want %d", n, got, want)
		}
	}
	if want != len(classLens)-1 {
		t.Errorf("the last class seen is %d", want)
	}
}

// The constants are those of crc.go's advance, which is the division itself.
func TestMultipliers(t *testing.T) {
	t.Parallel()
	table := newFoldTable()
	check := func(name string, i int, c uint64, bytes int) {
		t.Helper()
		if want := uint64(advance(1<<31, bytes)) << 1; c != want {
			t.Errorf("%s %d is %#x, not x^%d mod P = %#x", name, i, c, 8*bytes, want)
		}
	}
	for i, m := range table.last {
		n := blockLen - vectorLen*(i+1)
		if i == len(table.last)-1 {
			n = blockLen
		}
		check("last", i, m[0], n+4)
		check("last", i, m[1], n-4)
	}
	for k := 1; k < len(table.chains); k++ {
		check("chains", k, table.chains[k], chainStep*k-4)
	}
}

func TestKernelOnThisMachine(t *testing.T) {
	if !haveKernel {
		t.Skip("this processor has no CRC32 instructions, or the system does not say so")
	}
	for i, w := range fastest {
		if !w.can() {
			t.Errorf("%s, chosen from %d bytes, is not for this processor", wayNames[w], classLens[i])
		}
		t.Logf("from %d bytes: %s", classLens[i], wayNames[w])
	}
	if got := testing.AllocsPerRun(10, func() {
		var b [4108]byte
		updateKernel(0, b[:])
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func BenchmarkWays(b *testing.B) {
	packet := randomBytes(rand.New(rand.NewPCG(17, 18)), 4108)
	for w, name := range wayNames {
		for _, n := range []int{268, 1036, 4108} {
			if !w.can() {
				continue
			}
			b.Run(name, func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					w.update(1, packet[:n])
				}
			})
		}
	}
}
