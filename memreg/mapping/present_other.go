//go:build !linux

package mapping

import "os"

// Where the system is not asked what is in memory.
var anonymousResidence residence

func residenceOf(uintptr, os.FileInfo, *Options) residence { return residence{} }

func resident([]byte) int { return 0 }

func populatePages([]byte, bool) error { return errNoPopulate }

// onDisk takes every file for one on a disk: where there is no such call, a
// file system in memory is rare.
func onDisk(uintptr) bool { return true }

// noReserve is for Linux only: others either do not reserve, or cannot be told.
const noReserve = 0
