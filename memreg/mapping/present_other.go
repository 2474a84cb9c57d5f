//go:build !linux

package mapping

import "os"

// Where the system is not asked what is in memory.
const mayAskAnonymous = false

func mayAsk(os.FileInfo, *Options) bool { return false }

func resident([]byte) bool { return false }

func populatePages([]byte, bool) error { return errNoPopulate }
