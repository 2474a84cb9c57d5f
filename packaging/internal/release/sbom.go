package release

import (
	"debug/buildinfo"
	"encoding/json"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// bom is a list of what a program is made of, as CycloneDX 1.5 writes it.
type bom struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    bomMetadata `json:"metadata"`
	Components  []component `json:"components"`
}

type bomMetadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func goComponent(kind, path, version, sum string) component {
	purl := "pkg:golang/" + path + "@" + version
	c := component{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
	if sum != "" {
		c.Properties = []property{{"go:sum", sum}}
	}
	return c
}

// billOfMaterials lists the modules of Go programs, as the Go command has
// written them into the programs, and Go itself.
func billOfMaterials(files []string, date time.Time) ([]byte, error) {
	modules := map[string]*debug.Module{}
	var first *buildinfo.BuildInfo
	for _, file := range files {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = info
		}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			modules[m.Path] = m
		}
	}
	b := bom{Format: "CycloneDX", SpecVersion: "1.5", Version: 1, Metadata: bomMetadata{
		Timestamp: date.UTC().Format(time.RFC3339),
		Component: goComponent("application", first.Main.Path, first.Main.Version, ""),
	}}
	for _, s := range first.Settings {
		if strings.HasPrefix(s.Key, "vcs.") || s.Key == "GOOS" || s.Key == "GOARCH" {
			b.Metadata.Component.Properties = append(b.Metadata.Component.Properties, property{"go:" + s.Key, s.Value})
		}
	}
	b.Components = []component{goComponent("library", "std", strings.TrimPrefix(first.GoVersion, "go"), "")}
	for _, m := range modules {
		b.Components = append(b.Components, goComponent("library", m.Path, m.Version, m.Sum))
	}
	slices.SortFunc(b.Components, func(a, b component) int { return strings.Compare(a.Name, b.Name) })
	text, err := json.MarshalIndent(b, "", "  ")
	return append(text, '\n'), err
}
