package show

import "testing"

// What is seen stays: the order, each style, and what is seen through apart.
func TestCompact(t *testing.T) {
	const ticks, seen = `style="fill:none;stroke:#000000;stroke-width:0.25"`, `style="fill:#FFFFFF;fill-opacity:0.5"`
	got := compact(`<svg width="1.234pt"
	viewBox="0 0 1.234 2">
<path d="M1.25,2.04L3,4.96" ` + ticks + ` />
<path d="M10,11.96L3,4" ` + ticks + ` />
<path d="M1,2Z" ` + seen + ` />
<path d="M1,2Z" ` + seen + ` />
<text x="0.449" y="-1"
	style="font-family:Liberation Sans;font-variant:normal;font-weight:normal;font-style:normal;font-size:10.25px">1.234</text>
<path d="M5,6" ` + ticks + ` />
</svg>
`)
	const want = `<svg font-family="Liberation Sans" width="1.234pt" viewBox="0 0 1.234 2">
<path d="M1.2,2L3,5M10,12L3,4" style="fill:none;stroke:#000;stroke-width:0.25"/>
<path d="M1,2Z" style="fill:#FFF;fill-opacity:0.5"/>
<path d="M1,2Z" style="fill:#FFF;fill-opacity:0.5"/>
<text x="0.4" y="-1" style="font-size:10.25px">1.234</text>
<path d="M5,6" style="fill:none;stroke:#000;stroke-width:0.25"/>
</svg>
`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
