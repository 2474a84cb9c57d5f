package rocev2

import "golang.org/x/sys/cpu"

// ICRCFeatures says by which instructions of this processor ICRCs are computed.
func ICRCFeatures() string {
	switch {
	case haveKernel && folds.multiply != 0:
		return "AVX-512 with VPCLMULQDQ (folding by multiplication)"
	case haveKernel:
		return "AVX-512 with VPCLMULQDQ and GFNI (folding by affine transformation and multiplication)"
	case cpu.X86.HasPCLMULQDQ && cpu.X86.HasSSE41:
		return "PCLMULQDQ and SSE4.1 (hash/crc32)"
	}
	return "none (tables)"
}
