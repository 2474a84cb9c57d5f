// Package report writes what a run of package lab, or many of package sweep,
// has come to as a page of HTML: what was asked, what came out, drawings, and
// what to look at. The page is one file. It needs no network and no script, is
// light or dark as its reader's system is, and links to the tables of package
// record beside it. Texts of a scenario are shown as they are: it may come
// from a stranger.
package report
