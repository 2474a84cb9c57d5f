// Package plot draws lines over time, and distributions, as SVG: what a run of
// a simulated network has shown. It knows nothing of networks. A drawing has no
// font, script or file of its own, and follows the dark mode of its viewer.
//
// A plotting library would do more, and bring dozens of packages into every
// program that imports the product.
package plot
