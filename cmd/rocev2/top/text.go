package top

import (
	"strings"
	"unicode"
)

// fit returns a text cut to a width.
func fit(s string, width int) string {
	used := 0
	for i, r := range s {
		if used += widthOf(r); used > width {
			return s[:i]
		}
	}
	return s
}

// pad returns a text with exactly a width.
func pad(s string, width int, right bool) string {
	s = fit(s, width)
	gap := strings.Repeat(" ", max(width-textWidth(s), 0))
	if right {
		return gap + s
	}
	return s + gap
}

// wide are the blocks whose characters take two places, as far as names of
// programs may have them.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x1100, Hi: 0x115f, Stride: 1}, {Lo: 0x2e80, Hi: 0xa4cf, Stride: 1}, {Lo: 0xac00, Hi: 0xd7a3, Stride: 1},
		{Lo: 0xf900, Hi: 0xfaff, Stride: 1}, {Lo: 0xfe30, Hi: 0xfe6f, Stride: 1}, {Lo: 0xff00, Hi: 0xff60, Stride: 1}, {Lo: 0xffe0, Hi: 0xffe6, Stride: 1}},
	R32: []unicode.Range32{{Lo: 0x1f300, Hi: 0x1faff, Stride: 1}, {Lo: 0x20000, Hi: 0x3fffd, Stride: 1}},
}

func widthOf(r rune) int {
	if unicode.Is(wide, r) {
		return 2
	}
	return 1
}

func textWidth(s string) (n int) {
	for _, r := range s {
		n += widthOf(r)
	}
	return n
}
