package main

import (
	"fmt"
	"strings"

	"github.com/gosoftroce/rocev2/internal/regular"
	"github.com/gosoftroce/rocev2/observe/dissect"
)

// follow has a capture opened with the keys that the user has named.
func (d *dumper) follow(keys *dissect.Keys) error {
	if d.dumpFlags.keys == "" {
		return nil
	}
	log, err := regular.Open(d.dumpFlags.keys)
	if err != nil {
		return fmt.Errorf("--keys: %w", err)
	}
	d.closers = append(d.closers, log.Close)
	if err := keys.Follow(log, d.dumpFlags.keys); err != nil {
		return fmt.Errorf("--keys: %w", err)
	}
	return nil
}

// reportKeys says why packets stay closed, and what is wrong with the keys.
func (d *dumper) reportKeys() {
	keys, s := d.capture.Keys(), &d.stats.Sealed
	if err := keys.Problem(); err != nil {
		fmt.Fprintf(d.err, "%v\n", err)
	}
	closed := s.NoKey + s.WrongKey + s.Cut
	if d.dumpFlags.keys != "" && keys.Len() == 0 {
		fmt.Fprintf(d.err, "%s has no key of sealed packets: no line begins with %s\n", d.dumpFlags.keys, dissect.KeyLabel)
	}
	if closed == 0 {
		return
	}
	fmt.Fprintf(d.err, "%d of %d sealed packets are not opened", closed, s.Packets)
	if s.NoKey > 0 {
		var spis []string
		for _, spi := range s.SPIs {
			spis = append(spis, fmt.Sprintf("0x%08x", spi))
		}
		if len(spis) == dissect.MostSPIs {
			spis = append(spis, "...")
		}
		fmt.Fprintf(d.err, "; %d have no key, SPI %s", s.NoKey, strings.Join(spis, ", "))
	}
	if s.WrongKey > 0 {
		fmt.Fprintf(d.err, "; for %d there are keys of their SPI, and none fits", s.WrongKey)
	}
	if s.Cut > 0 {
		fmt.Fprintf(d.err, "; %d were not captured as a whole", s.Cut)
	}
	if d.dumpFlags.keys == "" && keys.Len() == 0 {
		fmt.Fprint(d.err, "; --keys FILE opens them with a key log")
	}
	fmt.Fprintln(d.err)
}
