package top

import (
	"slices"
	"strings"
)

// mostWidth is what a column of texts grows to.
const mostWidth = 39 // an address of IPv6

// placed is a column on a screen.
type placed struct {
	index, width int
}

// place returns how wide each column is: texts have the room that they need, up
// to a bound.
func (t *Table) place() []placed {
	list := make([]placed, len(t.columns))
	for i, c := range t.columns {
		list[i] = placed{i, max(c.width, len(c.title))}
		if !c.right {
			for _, row := range t.rows {
				list[i].width = max(list[i].width, min(textWidth(row[i].text), mostWidth))
			}
		}
	}
	return list
}

// visible returns the columns that are shown: those that fit, and the one that
// the table is sorted by, which takes the place of the last ones.
func (t *Table) visible(width, sorted int) []placed {
	all := t.place()
	used, n := 0, 0
	for ; n < len(all) && used+all[n].width <= width; n++ {
		used += all[n].width + 1
	}
	list := slices.Clone(all[:n])
	if sorted < n || sorted >= len(all) {
		return list
	}
	for used+all[sorted].width > width && len(list) > 0 {
		used -= list[len(list)-1].width + 1
		list = list[:len(list)-1]
	}
	if used+all[sorted].width <= width {
		list = append(list, all[sorted])
	}
	return list
}

// header is the line of titles. That of the column that the table is sorted by
// is marked.
func (t *Table) header(columns []placed, sorted int) string {
	var b strings.Builder
	for i, p := range columns {
		if i > 0 {
			b.WriteString(reverse + " " + normal)
		}
		c := t.columns[p.index]
		style := reverse
		if p.index == sorted {
			style = bold
		}
		b.WriteString(style + pad(c.title, p.width, c.right) + normal)
	}
	return b.String()
}

// line is the line of a row, without blanks at its end.
func (t *Table) line(row []cell, columns []placed) string {
	var b strings.Builder
	for i, p := range columns {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(pad(row[p.index].text, p.width, t.columns[p.index].right))
	}
	return strings.TrimRight(b.String(), " ")
}

// titles is the line of titles without marks.
func (t *Table) titles(columns []placed) string {
	row := make([]cell, len(t.columns))
	for i, c := range t.columns {
		row[i].text = c.title
	}
	return t.line(row, columns)
}
