package show

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/fairlead/fairlead/sim"
)

//go:embed page.md
var markdownText string

var markdownTemplate = template.Must(template.New("markdown").Funcs(template.FuncMap{
	"grid":    func(f sim.Figure) grid { return newGrid(&f) },
	"file":    figureFile,
	"seeds":   seedsLine,
	"samples": samplesText,
	"verdict": verdict,
	"check":   checkText,
	"axis":    axisTitle,
	"row":     row,
	"rule":    func(cells []string) string { return "|---|" + strings.Repeat("---:|", len(cells)-1) },
	"plain":   plain,
}).Parse(markdownText))

// markdown is the report for where pages of HTML are not shown.
func (r *Report) markdown() ([]byte, error) {
	var b bytes.Buffer
	if err := markdownTemplate.Execute(&b, r); err != nil {
		return nil, fmt.Errorf("write Markdown: %w", err)
	}
	return b.Bytes(), nil
}

// row is a table's.
func row(cells []string) string {
	var b strings.Builder
	for _, c := range cells {
		b.WriteString("| " + plain(c) + " ")
	}
	return b.String() + "|"
}

var plainText = strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "_", `\_`, "\n", " ")

// plain keeps Markdown from reading more into a text than it says.
func plain(text string) string { return plainText.Replace(text) }
