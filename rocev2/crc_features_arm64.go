//go:build !portable

package rocev2

import (
	"fmt"
	"strings"
)

// ICRCFeatures says by which instructions of this processor ICRCs are computed.
func ICRCFeatures() string {
	if !haveKernel {
		return "none (tables)"
	}
	names := [ways]string{"CRC32", "CRC32 in four chains", "PMULL", "PMULL with SHA3", "PMULL beside CRC32"}
	var list []string
	for i, n := range classLens {
		list = append(list, fmt.Sprintf("%s from %d bytes", names[fastest[i]], n))
	}
	return strings.Join(list, ", ")
}
