// Package doccheck holds the tests that keep the documentation true: relative
// links and anchors resolve, and the tests, scripts, files and make targets
// that the Markdown files name exist, tests in the package that is named.
package doccheck
