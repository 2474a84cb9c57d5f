//go:build unix && !linux

package mapping

// directFlag: other systems have other ways to read past the page cache.
const directFlag = 0
