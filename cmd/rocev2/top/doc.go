// Package top is "rocev2 top": what devices, queue pairs and programs do, as it
// changes.
//
// A [Source] takes a [Sample]: counters at a time. Two samples make [Tables],
// with rates. A [View] is which table is shown, how it is sorted, and where it
// is scrolled to: it takes keys, and makes the lines of a screen, of any size.
// [Live] has it on a terminal. [Print] writes tables to anything else, and
// nothing of it needs a terminal.
//
// What comes from a daemon or from a program may be hostile: a name is shown
// without what a terminal would obey.
package top
