package report

import (
	"golang.org/x/image/font"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
	plotfont "gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// outlines is an SVG canvas that draws text as shapes. A picture then looks the
// same everywhere: an SVG that names a font is set in whatever the viewer has
// instead, and its labels run into each other.
type outlines struct {
	*vgsvg.Canvas
	glyphs sfnt.Buffer
}

func newOutlines(w, h vg.Length) draw.Canvas {
	return draw.NewCanvas(&outlines{Canvas: vgsvg.New(w, h)}, w, h)
}

// FillString implements vg.Canvas.
func (c *outlines) FillString(f plotfont.Face, at vg.Point, text string) {
	size := f.Font.Size.Points()
	scale := fixed.I(int(f.Face.UnitsPerEm())) // glyphs in the font's own units
	to := func(p fixed.Point26_6) vg.Point {
		return vg.Point{
			X: at.X + vg.Points(float64(p.X)/float64(scale)*size),
			Y: at.Y - vg.Points(float64(p.Y)/float64(scale)*size),
		}
	}
	var shape vg.Path
	for _, r := range text {
		glyph, err := f.Face.GlyphIndex(&c.glyphs, r)
		if err != nil {
			continue
		}
		segments, err := f.Face.LoadGlyph(&c.glyphs, glyph, scale, nil)
		if err != nil {
			continue
		}
		for i, s := range segments {
			switch s.Op {
			case sfnt.SegmentOpMoveTo:
				if i > 0 {
					shape.Close()
				}
				shape.Move(to(s.Args[0]))
			case sfnt.SegmentOpLineTo:
				shape.Line(to(s.Args[0]))
			case sfnt.SegmentOpQuadTo:
				shape.QuadTo(to(s.Args[0]), to(s.Args[1]))
			case sfnt.SegmentOpCubeTo:
				shape.CubeTo(to(s.Args[0]), to(s.Args[1]), to(s.Args[2]))
			}
		}
		if len(segments) > 0 {
			shape.Close()
		}
		if wide, err := f.Face.GlyphAdvance(&c.glyphs, glyph, scale, font.HintingNone); err == nil {
			at.X += vg.Points(float64(wide) / float64(scale) * size)
		}
	}
	if len(shape) > 0 {
		c.Fill(shape)
	}
}
