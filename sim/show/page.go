package show

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"regexp"

	"github.com/fairlead/fairlead/sim"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"grid":    func(f sim.Figure) grid { return newGrid(&f) },
	"seeds":   seedsLine,
	"samples": samplesText,
	"verdict": verdict,
	"unit":    withUnit,
	"number":  number,
	"bounds":  boundsText,
	"axis":    axisTitle,
	"code":    code,
	// Replaced by page, as it needs the report's files.
	"svg": func(string, sim.Figure) template.HTML { return "" },
}).Parse(pageText))

// page is the report as one file that needs no other: plots are in it.
func (r *Report) page(files map[string][]byte) ([]byte, error) {
	t, err := pageTemplate.Clone()
	if err != nil {
		return nil, fmt.Errorf("write page: %w", err)
	}
	t.Funcs(template.FuncMap{"svg": func(scenario string, f sim.Figure) template.HTML {
		return inline(files[figureFile(scenario, f.Name)], f)
	}})
	var b bytes.Buffer
	if err := t.Execute(&b, r); err != nil {
		return nil, fmt.Errorf("write page: %w", err)
	}
	return b.Bytes(), nil
}

// prologue of an SVG file up to its viewBox: what a page has no use for.
var prologue = regexp.MustCompile(`(?s)^.*?<svg [^>]*?(viewBox="[^"]*")[^>]*>`)

// inline makes an SVG file part of a page. Text in it was escaped as it was
// drawn.
func inline(svg []byte, f sim.Figure) template.HTML {
	m := prologue.FindSubmatchIndex(svg)
	if m == nil {
		return template.HTML(svg)
	}
	head := `<svg role="img" aria-label="` + template.HTMLEscapeString(f.Title) + `" ` + string(svg[m[2]:m[3]]) + ">"
	return template.HTML(head + string(svg[m[1]:]))
}

var quoted = regexp.MustCompile("`([^`]+)`")

// code is a text in which what stands in backquotes is code.
func code(text string) template.HTML {
	return template.HTML(quoted.ReplaceAllString(template.HTMLEscapeString(text), "<code>$1</code>"))
}
