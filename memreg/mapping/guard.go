package mapping

import "github.com/gosoftroce/rocev2/memreg"

// guarded is mapped memory whose accesses may fault in hardware, such as a file
// mapping that was truncated: the fault becomes an error.
type guarded struct {
	memreg.Memory
	pages *presence
}
