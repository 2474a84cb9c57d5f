package main

import (
	"context"
	"errors"
	"log"
	"os"
	"path/filepath"

	"github.com/gosoftroce/rocev2/bench/internal/diff"
)

// datapath are the cells of a comparison that names none: what a change of the
// datapath may slow down.
const datapath = `^ours/((write|send|read)/(1MiB|size=16KiB|8B/qps=1|lat)|(write|send)/1MiB/(both|mtu=1024)|write/4KiB/qps=1|send/lat/event|read/lat/parked)$`

// compare measures two builds in turn and prints which cells differ.
func compare(ctx context.Context, f *flags) (err error) {
	tmp, err := os.MkdirTemp("", "rocebench-diff")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	o := diff.Options{
		Match: f.match, Rounds: f.rounds, Quick: f.quick, Warm: f.warm, Measure: f.measure, Again: f.again, Logf: log.Printf,
	}
	if o.Match == "" {
		o.Match = datapath
	}
	if f.out != "" {
		if err := os.MkdirAll(f.out, 0o755); err != nil {
			return err
		}
		o.File = filepath.Join(f.out, "diff.json")
	}
	var remove func()
	if o.Old, remove, err = buildOf(ctx, f.diff, filepath.Join(tmp, "old"), f.layouts); err != nil {
		return err
	}
	defer remove()
	if o.New, remove, err = buildOf(ctx, f.with, filepath.Join(tmp, "new"), f.layouts); err != nil {
		return err
	}
	defer remove()
	s, err := diff.Run(ctx, o)
	if s != nil && len(s.Rounds) > 0 {
		err = errors.Join(err, s.Print(os.Stdout))
	}
	return err
}

// buildOf takes an executable, or builds a commit or, if what is "", the
// working tree.
func buildOf(ctx context.Context, what, dir string, layouts int) (diff.Build, func(), error) {
	if what == "" {
		log.Print("building the working tree")
		b, err := diff.WorkingTree(ctx, dir, layouts)
		return b, func() {}, err
	}
	if _, err := os.Stat(what); err == nil {
		b, err := diff.Executable(what)
		return b, func() {}, err
	}
	log.Print("building ", what)
	return diff.Commit(ctx, what, dir, layouts)
}
