//go:build !linux || portable

package shm

import "github.com/gosoftroce/rocev2/transport"

// Wrap returns the links as they are: this system shares no memory.
func Wrap(links ...transport.Link) []transport.Link { return links }
