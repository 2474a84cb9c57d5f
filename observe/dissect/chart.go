package dissect

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Chart is the sequence chart of one connection: what goes from one end to the
// other, line by line.
type Chart struct {
	id     int
	limit  int
	conn   *Connection
	arrows []arrow
	more   int   // packets beyond the limit
	others []int // other connections that were seen, at most maxOthers
}

const (
	maxOthers = 64

	// DefaultArrows is how many arrows a chart has at most if its maker
	// does not say.
	DefaultArrows = 500
)

// arrow is a packet, or several alike in a row.
type arrow struct {
	at      time.Duration
	from    int
	label   string // without PSN and length
	class   string
	first   rocev2.PSN
	last    rocev2.PSN
	count   int
	payload int
	asks    int64 // bytes, of a READ
	psn     bool
	note    string
	opcode  rocev2.Opcode
	middle  bool
	sealed  bool // and not opened
}

// NewChart returns a chart of the connection with this ID, or with 0 of the
// first one that it is given a packet of. It has at most that many arrows; 0
// means DefaultArrows.
func NewChart(id, arrows int) *Chart {
	if arrows <= 0 {
		arrows = DefaultArrows
	}
	return &Chart{id: id, limit: arrows}
}

// Connection returns the connection of the chart; nil if there was no packet.
func (c *Chart) Connection() *Connection { return c.conn }

// Others returns the IDs of connections whose packets are not in the chart, at
// most 64 of them, and More how many packets of its own are not.
func (c *Chart) Others() []int { return c.others }

// More returns how many packets of the connection are beyond the limit.
func (c *Chart) More() int { return c.more }

// Add takes a packet, if it is of the connection.
func (c *Chart) Add(p *Packet) {
	if p.Conn == nil {
		return
	}
	if c.id == 0 {
		c.id = p.Conn.ID
	}
	if p.Conn.ID != c.id {
		if len(c.others) < maxOthers && !slices.Contains(c.others, p.Conn.ID) {
			c.others = append(c.others, p.Conn.ID)
		}
		return
	}
	c.conn = p.Conn
	a := newArrow(p)
	if n := len(c.arrows); n > 0 && c.arrows[n-1].takes(&a) {
		last := &c.arrows[n-1]
		last.last = a.last
		last.count++
		last.payload += a.payload
		return
	}
	if len(c.arrows) == c.limit {
		c.more++
		return
	}
	c.arrows = append(c.arrows, a)
}

// takes reports whether b is one more of the same.
func (a *arrow) takes(b *arrow) bool {
	if a.sealed && b.sealed {
		return a.from == b.from && a.note == "" && b.note == ""
	}
	return a.middle && b.middle && a.from == b.from && a.opcode == b.opcode && a.note == "" && b.note == "" &&
		b.first == a.last.Next()
}

func newArrow(p *Packet) arrow {
	a := arrow{
		at: p.Offset, from: p.From, count: 1, payload: p.PayloadLen, first: p.Wire.BTH.PSN, last: p.Wire.BTH.PSN,
		opcode: p.Wire.BTH.Opcode, psn: true,
	}
	if p.closed() {
		a.label, a.class, a.psn, a.sealed, a.payload = "sealed", "request", false, true, p.Sealed.Length
		a.opcode, a.first, a.last = 0, 0, 0
		if p.Flags&Replayed != 0 {
			a.note, a.class = "replayed", "trouble"
		}
		return a
	}
	info := p.Info()
	_, short, _ := strings.Cut(p.Wire.BTH.Opcode.String(), "_")
	a.label = strings.TrimPrefix(short, "RDMA_")
	a.middle = p.Err == nil && info.Payload == rocev2.PayloadMTU && !info.First
	switch {
	case p.Mgmt.Present:
		a.label, a.psn, a.class, a.payload = "CM "+p.Mgmt.Name(), false, "management", 0
	case info.Operation == rocev2.OpCNP:
		a.label, a.psn, a.class = "CNP", false, "congestion"
	case info.Operation == rocev2.OpAcknowledge && p.Err == nil:
		a.label, a.class = p.answer(), "response"
		if s := p.Wire.AETH.Syndrome; !s.IsACK() {
			a.class, a.note = "trouble", s.String()
		}
	case info.Role == rocev2.RoleResponse:
		a.class = "response"
	default:
		a.class = "request"
		if info.Operation == rocev2.OpReadRequest && p.Err == nil {
			a.asks = int64(p.Wire.RETH.Length)
		}
	}
	if note := a.trouble(p); note != "" {
		a.class, a.note = "trouble", note
	}
	return a
}

// trouble says in short what is wrong with a packet.
func (a *arrow) trouble(p *Packet) string {
	switch {
	case p.Err != nil:
		return "malformed"
	case p.ICRC == ICRCBad:
		return "bad ICRC"
	case p.Flags&Replayed != 0:
		return "replayed"
	case p.Flags&Duplicate != 0:
		return "sent again, duplicate"
	case p.Flags&Retransmitted != 0:
		return "sent again"
	case p.Flags&Gap != 0:
		return fmt.Sprintf("%d missing before", p.Missing)
	case p.Flags&OutOfOrder != 0:
		return "late"
	case p.Flags&Unseen != 0:
		return "request not captured"
	}
	return a.note
}

// text is what stands at the arrow.
func (a *arrow) text() string {
	s := a.label
	if a.count > 1 {
		s += fmt.Sprintf(" × %d", a.count)
	}
	if a.psn {
		s += fmt.Sprintf(" %d", a.first)
		if a.count > 1 {
			s += fmt.Sprintf("–%d", a.last)
		}
	}
	if a.payload > 0 {
		s += ", " + Bytes(int64(a.payload))
	}
	if a.asks > 0 {
		s += ", asks for " + Bytes(a.asks)
	}
	if a.note != "" {
		s += " (" + a.note + ")"
	}
	return s
}

// pause is how long nothing must happen for a chart to say so.
const pause = time.Millisecond

// pauseBefore returns the time since the arrow in front of it, if that is long.
func (c *Chart) pauseBefore(i int) time.Duration {
	if i == 0 {
		return 0
	}
	if d := c.arrows[i].at - c.arrows[i-1].at; d >= pause {
		return d
	}
	return 0
}

func (c *Chart) title() string {
	s := fmt.Sprintf("%s %v", c.conn.Name(), c.conn.Service)
	if state := stateText(c.conn); state != "-" {
		s += " " + state
	}
	return s
}

const (
	timeColumn = 12
	minColumns = 60
)

// WriteText draws the chart in that many columns.
func (c *Chart) WriteText(w io.Writer, columns int) error {
	if c.conn == nil {
		_, err := fmt.Fprintln(w, "no packets of a connection")
		return err
	}
	width := max(columns, minColumns) - timeColumn - 4 // between the two lines
	var b strings.Builder
	fmt.Fprintln(&b, c.title())
	left, right := c.conn.A.String(), c.conn.B.String()
	gap := max(2, width+2-utf8.RuneCountInString(left)-utf8.RuneCountInString(right))
	fmt.Fprintf(&b, "%*s  %s%s%s\n", timeColumn, "", left, strings.Repeat(" ", gap), right)
	for i := range c.arrows {
		a := &c.arrows[i]
		if d := c.pauseBefore(i); d > 0 {
			fmt.Fprintf(&b, "%*s  │%s│\n", timeColumn, "", centre("· "+Duration(d)+" ·", width))
		}
		fmt.Fprintf(&b, "%*s  %s\n", timeColumn, Seconds(a.at), a.draw(width))
	}
	if c.more > 0 {
		fmt.Fprintf(&b, "%*s  %d more packets\n", timeColumn, "", c.more)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// draw draws an arrow between two lines.
func (a *arrow) draw(width int) string {
	text := a.text()
	if n := utf8.RuneCountInString(text); n > width-6 {
		text = string([]rune(text)[:width-7]) + "…"
	}
	dash := "─"
	if a.class == "trouble" {
		dash = "╌"
	}
	line := strings.Repeat(dash, max(0, width-5-utf8.RuneCountInString(text)))
	if a.from == 0 {
		return "├" + dash + dash + " " + text + " " + line + "▶│"
	}
	return "│◀" + line + " " + text + " " + dash + dash + "┤"
}

func centre(s string, width int) string {
	n := max(0, width-utf8.RuneCountInString(s))
	return strings.Repeat(" ", n/2) + s + strings.Repeat(" ", n-n/2)
}

// Places in the SVG, in pixels.
const (
	svgWidth  = 960
	svgLeft   = 200
	svgRight  = 860
	svgTop    = 84
	svgRow    = 26
	svgPause  = 26
	svgSlant  = 6
	svgBottom = 24
)

const svgStyle = `<style>
svg{background:#fff;color:#1f2328;font:12px ui-monospace,Menlo,Consolas,monospace}
text{fill:currentColor}.title{font-size:15px;font-weight:bold}.time,.pause{fill:#656d76}
.life{stroke:#8c959f;stroke-width:1.5}.request{color:#0969da}.response{color:#1a7f37}
.management{color:#8250df}.congestion{color:#bc4c00}.trouble{color:#cf222e}.trouble line{stroke-dasharray:5 3}
.arrow line{stroke:currentColor;stroke-width:1.5}.arrow path{fill:currentColor}
@media(prefers-color-scheme:dark){svg{background:#0d1117;color:#e6edf3}.time,.pause{fill:#8d96a0}.life{stroke:#6e7681}
.request{color:#4493f8}.response{color:#3fb950}.management{color:#ab7df8}.congestion{color:#f0883e}.trouble{color:#f85149}}
</style>
`

// WriteSVG draws the chart as an SVG picture.
func (c *Chart) WriteSVG(w io.Writer) error {
	height := svgTop + svgBottom
	for i := range c.arrows {
		height += svgRow
		if c.pauseBefore(i) > 0 {
			height += svgPause
		}
	}
	if c.more > 0 || c.conn == nil {
		height += svgRow
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", svgWidth, height, svgWidth, height)
	b.WriteString(svgStyle)
	if c.conn == nil {
		svgText(&b, 20, 40, "title", "", "no packets of a connection")
		b.WriteString("</svg>\n")
		_, err := io.WriteString(w, b.String())
		return err
	}
	svgText(&b, 20, 28, "title", "", c.title())
	svgText(&b, svgLeft, 58, "", "middle", c.conn.A.String())
	svgText(&b, svgRight, 58, "", "end", c.conn.B.String())
	for _, x := range [...]int{svgLeft, svgRight} {
		fmt.Fprintf(&b, "<line class=\"life\" x1=\"%d\" y1=\"68\" x2=\"%d\" y2=\"%d\"/>\n", x, x, height-svgBottom/2)
	}
	y := svgTop
	for i := range c.arrows {
		a := &c.arrows[i]
		if d := c.pauseBefore(i); d > 0 {
			svgText(&b, (svgLeft+svgRight)/2, y+svgPause/2-6, "pause", "middle", "· "+Duration(d)+" ·")
			y += svgPause
		}
		a.svg(&b, y)
		y += svgRow
	}
	if c.more > 0 {
		svgText(&b, (svgLeft+svgRight)/2, y+svgRow/2, "pause", "middle", fmt.Sprintf("%d more packets", c.more))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func svgText(b *strings.Builder, x, y int, class, anchor, text string) {
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\"", x, y)
	if class != "" {
		fmt.Fprintf(b, " class=\"%s\"", class)
	}
	if anchor != "" {
		fmt.Fprintf(b, " text-anchor=\"%s\"", anchor)
	}
	fmt.Fprintf(b, ">%s</text>\n", html.EscapeString(text))
}

// svg draws an arrow, which goes a little down: time runs downward.
func (a *arrow) svg(b *strings.Builder, y int) {
	svgText(b, svgLeft-14, y+4, "time", "end", Seconds(a.at))
	x1, x2, tip := svgLeft, svgRight, -9
	if a.from != 0 {
		x1, x2, tip = svgRight, svgLeft, 9
	}
	end := y + svgSlant
	fmt.Fprintf(b, "<g class=\"arrow %s\"><line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>", a.class, x1, y, x2+tip, end)
	fmt.Fprintf(b, "<path d=\"M%d %dl%d -4v8z\"/>", x2, end, tip)
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text></g>\n", (svgLeft+svgRight)/2, y-2, html.EscapeString(a.text()))
}
