//go:build !ctl

package main

import (
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/picture"
	"github.com/fairlead/fairlead/fabric/probe"
	"github.com/fairlead/fairlead/fabric/topology"
)

// probeView is what `path probe` shows.
type probeView struct {
	fabric  *topology.Fabric
	from    string
	targets []probe.Target
	links   []string // their names

	states   []probe.State
	findings []probe.Finding
	told     map[string]string // what news said of paths, by their names
}

// take takes in a report and says whether it tells anything new.
func (v *probeView) take(states []probe.State, findings []probe.Finding) bool {
	old := v.said()
	v.states, v.findings = states, findings
	return !reflect.DeepEqual(old, v.said())
}

// said is all that news tells.
func (v *probeView) said() map[string]string {
	said := map[string]string{}
	for i := range v.states {
		s := &v.states[i]
		said[fmt.Sprintf("path %d to %s (%s)", s.Path, v.targets[s.Target].Host, v.via(s))] = string(s.Verdict) + note(s)
	}
	for i := range v.findings {
		f := &v.findings[i]
		said[v.linksText(f)] = string(f.Kind) + ": " + f.Detail
	}
	return said
}

// note is why a path is not well, or what is rewritten on it, in brackets.
func note(s *probe.State) string {
	text := strings.TrimPrefix(s.Reason+"; "+s.Altered, "; ")
	if text = strings.TrimSuffix(text, "; "); text == "" {
		return ""
	}
	return " (" + text + ")"
}

// leastLoss is the part of probes whose loss is told where the verdict is good;
// a single one may be anybody's.
const leastLoss = 0.02

// partly tells of probes that were lost on a path that counts as good: a
// verdict takes three in a row, and a link may lose some of many.
func partly(s *probe.State) string {
	lost := s.Sent - s.Answered
	if s.Verdict != probe.Good || lost < 2 || float64(lost) < leastLoss*float64(s.Sent) {
		return ""
	}
	return fmt.Sprintf(" (loses some: %.0f %% of probes)", 100*float64(lost)/float64(s.Sent))
}

// bad says whether anything is not as it should be.
func (v *probeView) bad() bool {
	return slices.ContainsFunc(v.states, func(s probe.State) bool { return s.Verdict != probe.Good || s.Altered != "" })
}

func (v *probeView) over(s *probe.State) *paths.Path { return &v.targets[s.Target].Paths[s.Path] }

// routers are the names of a path's routers.
func (v *probeView) routers(s *probe.State) []string {
	hops := v.over(s).Hops
	names := []string{}
	for _, h := range hops[:len(hops)-1] {
		names = append(names, v.fabric.Nodes[v.fabric.Links[h.Link].Ends[1-h.From].Node].Name)
	}
	return names
}

func (v *probeView) via(s *probe.State) string { return strings.Join(v.routers(s), " ") }

func (v *probeView) linksText(f *probe.Finding) string {
	var names []string
	for _, l := range f.Links {
		names = append(names, v.links[l])
	}
	switch len(names) {
	case 0:
		return "paths as a whole"
	case 1:
		return "link " + names[0]
	}
	return "one of links " + strings.Join(names, ", ")
}

// value is the stable form for -o json and yaml: times in microseconds, rates
// in bit/s.
func (v *probeView) value() any {
	list := []any{}
	good := 0
	for i := range v.states {
		s := &v.states[i]
		if s.Verdict == probe.Good && s.Altered == "" {
			good++
		}
		var links []string
		for _, h := range v.over(s).Hops {
			links = append(links, v.links[h.Link])
		}
		list = append(list, map[string]any{
			"target": v.targets[s.Target].Host, "path": s.Path, "via": v.routers(s), "links": links,
			"verdict": s.Verdict, "reason": s.Reason, "altered": s.Altered, "since": s.Since,
			"sent": s.Sent, "answered": s.Answered, "loss": loss(s),
			"rtt_min_us": micro(s.RTTMin), "rtt_mean_us": micro(s.RTTMean), "rtt_last_us": micro(s.RTTLast),
			"rate": s.Rates.There, "rate_back": s.Rates.Back,
			"source": s.Flow.Src, "destination": s.Flow.Dst, "source_port": s.Flow.SrcPort, "destination_port": s.Flow.DstPort,
			"flow_label": s.Flow.Label, "ttl": s.TTL,
		})
	}
	findings := []any{}
	for i := range v.findings {
		f := &v.findings[i]
		links := []string{}
		for _, l := range f.Links {
			links = append(links, v.links[l])
		}
		findings = append(findings, map[string]any{"kind": f.Kind, "links": links, "paths": f.Paths, "detail": f.Detail})
	}
	return map[string]any{"from": v.from, "paths": list, "findings": findings, "good": good, "bad": len(v.states) - good}
}

// loss is the part of a path's probes that had no answer.
func loss(s *probe.State) float64 {
	if s.Sent == 0 {
		return 0
	}
	return float64(s.Sent-s.Answered) / float64(s.Sent)
}

func micro(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func (v *probeView) table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PATH\tVIA\tVERDICT\tSENT\tLOST\tRTT MIN\tMEAN\tRATE\tBACK\tPORT\tNOTE")
	for i := range v.states {
		s := &v.states[i]
		selector := strconv.Itoa(int(s.Flow.SrcPort))
		if s.Flow.Label != 0 {
			selector = fmt.Sprintf("label %#05x", s.Flow.Label)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Path, v.via(s), s.Verdict, s.Sent, s.Sent-s.Answered,
			rtt(s.RTTMin), rtt(s.RTTMean), rateText(s.Rates.There), rateText(s.Rates.Back), selector, strings.Trim(partly(s)+note(s), " ()"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range v.findings {
		f := &v.findings[i]
		if _, err := fmt.Fprintf(w, "\n%s: %s (%s)", v.linksText(f), f.Kind, f.Detail); err != nil {
			return err
		}
	}
	if len(v.findings) > 0 {
		fmt.Fprintln(w)
	}
	if v.silent() {
		_, err := fmt.Fprintln(w, "\nno path is answered: before all links, suspect the key, which may be another at the routers or the other host than in this file; `fairlead doctor --fabric FILE` compares them")
		return err
	}
	return nil
}

// silent says whether no probe of any path has had an answer, and nobody said
// why: a key that differs looks as if all links were bad.
func (v *probeView) silent() bool {
	for i := range v.states {
		s := &v.states[i]
		if s.Verdict != probe.Lost || s.Answered > 0 || strings.Contains(s.Reason, "has no answerer") {
			return false
		}
	}
	return len(v.states) > 0
}

func rtt(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1e3)
}

func rateText(r float64) string {
	switch {
	case r == 0:
		return "-"
	case r >= probe.Measurable:
		return ">" + topology.FormatRate(probe.Measurable)
	}
	return topology.FormatRate(int64(r))
}

// news prints a line for all that changed since it was last called.
func (v *probeView) news(w io.Writer, now time.Time) error {
	said := v.said()
	at := now.Format("15:04:05.000")
	for _, i := range slices.Sorted(maps.Keys(said)) {
		if v.told[i] != said[i] {
			if _, err := fmt.Fprintf(w, "%s  %s: %s\n", at, i, said[i]); err != nil {
				return err
			}
		}
	}
	for _, i := range slices.Sorted(maps.Keys(v.told)) {
		if said[i] == "" {
			if _, err := fmt.Fprintf(w, "%s  %s: no longer %s\n", at, i, v.told[i]); err != nil {
				return err
			}
		}
	}
	v.told = said
	return nil
}

// pictureStyles are how findings are marked.
var pictureStyles = map[probe.Kind]picture.Style{
	probe.KindLost: picture.Lost, probe.KindSlow: picture.Slow,
	probe.KindUnused: picture.Unused, probe.KindAltered: picture.Altered,
}

func (v *probeView) draw(w io.Writer) error {
	p := picture.Picture{Fabric: v.fabric, Title: fmt.Sprintf("Paths from %s to %s, %s", v.from, v.targets[0].Host, time.Now().Format(time.DateTime))}
	for i := range v.states {
		s := &v.states[i]
		if s.Verdict != probe.Good || s.Altered != "" {
			continue
		}
		for _, h := range v.over(s).Hops {
			p.Mark(h.Link, picture.Mark{Style: picture.Well, Text: "well"})
		}
	}
	for i := range v.findings {
		f := &v.findings[i]
		for _, l := range f.Links {
			p.Mark(l, picture.Mark{Style: pictureStyles[f.Kind], Text: string(f.Kind) + ", " + f.Detail, Perhaps: len(f.Links) > 1})
		}
	}
	return p.Draw(w)
}
