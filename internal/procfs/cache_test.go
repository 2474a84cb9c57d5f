package procfs

import (
	"testing"
	"testing/fstest"
)

func TestL2Cache(t *testing.T) {
	t.Parallel()
	const dir = "devices/system/cpu/cpu0/cache/"
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }
	sys := fstest.MapFS{
		dir + "index0/level": file("1"), dir + "index0/type": file("Data"), dir + "index0/size": file("48K"),
		dir + "index2/level": file("2"), dir + "index2/type": file("Unified"), dir + "index2/size": file("2048K"),
		dir + "index3/level": file("3"), dir + "index3/type": file("Unified"), dir + "index3/size": file("300M"),
		dir + "uevent": file(""),
	}
	for _, c := range []struct {
		size string
		want int
	}{{"2048K", 2 << 20}, {"1M", 1 << 20}, {"524288", 512 << 10}, {"2048M", 0}, {"", 0}, {"-1K", 0}, {"9999999999999K", 0}, {"K", 0}} {
		sys[dir+"index2/size"] = file(c.size)
		if got := L2Cache(sys); got != c.want {
			t.Errorf("%q: %d, want %d", c.size, got, c.want)
		}
	}
	if got := L2Cache(fstest.MapFS{}); got != 0 {
		t.Errorf("nothing is known: %d", got)
	}
}
