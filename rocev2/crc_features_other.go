//go:build !amd64 && (!arm64 || portable)

package rocev2

// ICRCFeatures says by which instructions of this processor ICRCs are computed.
func ICRCFeatures() string { return "those of hash/crc32" }
