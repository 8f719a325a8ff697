package trace

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/fairlead/fairlead/vip"
)

// Text writes the story for people, one line a stage.
func (s *Story) Text(w io.Writer) error {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s%s\n", label, fmt.Sprintf(format, args...))
	}
	if s.Number > 0 {
		line("number", "%d", s.Number)
	}
	line("packet", "%s", s.Packet.text())
	if s.VIP != nil {
		policy := ", policy " + s.VIP.Policy
		if vip.Scheme(s.VIP.Scheme).Row().Chains() { // the bucket table says it all
			policy = ""
		}
		line("vip", "%s, scheme %s%s", s.VIP.text(), s.VIP.Scheme, policy)
	}
	if c := s.Cookie; c != nil {
		line("cookie", "%s", c.text())
	}
	if p := s.Policy; p != nil {
		own := ""
		if p.Name != "hash" { // counters and random numbers are each processor's own
			own = ", as one of the processors would choose next"
		}
		line("policy", "%s over %d entries%s", p.Name, p.Entries, own)
	}
	if f := s.Flow; f != nil {
		line("flow", "%s", f.text())
	}
	if h := s.Hash; h != nil {
		line("hash", "%s", h.text())
	}
	if k := s.Bucket; k != nil {
		line("bucket", "%s", k.text())
	}
	if v := s.Server; v != nil {
		line("server", "%s", v.text())
		line("way", "%s", v.way())
	}
	if o := s.Outer; o != nil {
		port := ""
		if o.Port != 0 {
			port = fmt.Sprintf(", source port %d", o.Port)
		}
		if o.Label != 0 {
			port += fmt.Sprintf(", flow label %#05x", o.Label)
		}
		line("outer", "%s > %s%s, %d bytes: %s", o.Src, o.Dst, port, o.Bytes, o.Hex)
	}
	if k := s.Bucket; k != nil {
		line("asks", "%s", k.Asks)
	}
	line("verdict", "%s (%s): %s", s.Verdict.Reason, s.Verdict.Action, s.Verdict.Explain)
	line("counts", "%s", s.Left.text(s.Verdict.Reason))
	if !s.Program.Same {
		line("note", "the loaded program (tag %s) is not this build's (%s), which the story is of: trace with the build that loaded it, or restart the daemon with this one",
			s.Program.Tag, s.Program.BuildTag)
	}
	if s.Disagreement != "" {
		line("defect", "program and model disagree, please report this: %s", s.Disagreement)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (p *Packet) text() string {
	var b strings.Builder
	fmt.Fprint(&b, p.Protocol)
	if p.Src != "" {
		fmt.Fprintf(&b, " %s > %s", p.Src, p.Dst)
	}
	if len(p.Flags) > 0 {
		fmt.Fprintf(&b, " [%s]", strings.Join(p.Flags, " "))
	}
	if p.ICMP != "" {
		fmt.Fprintf(&b, " %s", p.ICMP)
	}
	if p.Fragment {
		b.WriteString(" fragment")
	}
	fmt.Fprintf(&b, ", %d bytes", p.Length)
	if p.VLAN != 0 {
		fmt.Fprintf(&b, ", VLAN %d", p.VLAN&0xfff)
	}
	if p.TSVal != nil {
		fmt.Fprintf(&b, ", TSval %d, TSecr %d", *p.TSVal, *p.TSEcr)
	} else if p.Protocol == "tcp" && len(p.Flags) > 0 {
		b.WriteString(", no timestamp")
	}
	if p.Malformed != "" {
		fmt.Fprintf(&b, "; malformed: %s", p.Malformed)
	}
	if len(p.WrongChecksums) > 0 {
		fmt.Fprintf(&b, "; wrong checksum: %s", strings.Join(p.WrongChecksums, ", "))
	}
	if p.Quotes != nil {
		fmt.Fprintf(&b, "; quotes %s", p.Quotes.text())
	}
	return b.String()
}

func (v *VIP) text() string {
	name := cmp.Or(v.Name, fmt.Sprintf("id %d", v.ID))
	if v.Port == 0 {
		return fmt.Sprintf("%s: %s, all %s ports", name, v.Address, v.Protocol)
	}
	return fmt.Sprintf("%s: %s port %d %s", name, v.Address, v.Port, v.Protocol)
}

func (c *Cookie) text() string {
	epoch := "live"
	if !c.Live {
		epoch = "which no key decodes now"
	}
	slot := fmt.Sprintf("slot %d", c.Slot)
	if !c.Valid {
		slot += ", which names no server"
	}
	if c.Seat != nil {
		slot += fmt.Sprintf(", seat %d (%s)", c.Seat.Number, c.Seat.State)
	}
	age := fmt.Sprintf("stamped %.3f s ago", float64(c.AgeMS)/1000)
	if c.AgeMS < 0 {
		age = fmt.Sprintf("stamped %.3f s ahead of the balancer's clock", -float64(c.AgeMS)/1000)
	}
	return fmt.Sprintf("field %#x of %d bits: epoch parity %d (%s), %s; %s", c.Field, c.Bits, c.Epoch, epoch, slot, age)
}

func (v *Server) text() string {
	name := ""
	if v.Name != "" {
		name = " " + v.Name
	}
	if v.State != "" {
		name += " (" + v.State + ")"
	}
	return fmt.Sprintf("slot %d:%s %s", v.Slot, name, v.Address)
}

func (v *Server) way() string {
	out := v.Interface
	out = cmp.Or(out, fmt.Sprintf("interface %d", v.Ifindex))
	if v.VLAN != 0 {
		out += fmt.Sprintf(" VLAN %d", v.VLAN)
	}
	steered := ""
	switch {
	case v.Steer == nil:
	case v.Steer.ByHash:
		steered = fmt.Sprintf(", path by the hash: none is chosen for part %d", v.Steer.Part)
	default:
		steered = fmt.Sprintf(", path chosen for part %d", v.Steer.Part)
	}
	return fmt.Sprintf("%s out of %s to %s, packets up to %d bytes%s", v.Forwarding, out, v.NextHop, v.MTU, steered)
}

func (l *Left) text(reason string) string {
	var parts []string
	add := func(n int64, one, many string) {
		switch n {
		case 0:
		case 1:
			parts = append(parts, "1 "+one)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, many))
		}
	}
	if l.Reason {
		parts = append(parts, "reason "+reason)
	}
	if l.LinePackets > 0 {
		parts = append(parts, fmt.Sprintf("the server's line: %d packet, %d bytes", l.LinePackets, l.LineBytes))
	}
	add(int64(l.NewConnections), "new connection", "new connections")
	if l.OpenConnections != 0 {
		parts = append(parts, fmt.Sprintf("open connections %+d", l.OpenConnections))
	}
	add(int64(l.Fallback), "fallback", "fallbacks")
	add(int64(l.FlowHits), "flow hit", "flow hits")
	add(int64(l.BadCookies), "bad cookie", "bad cookies")
	add(int64(l.Dropped), "drop of the VIP", "drops of the VIP")
	add(int64(l.Tracked), "tracked", "tracked")
	add(int64(l.FlowFull), "flow not tracked: set full", "flows not tracked: set full")
	add(int64(l.FlowReplaced), "entry of another flow replaced", "entries of other flows replaced")
	add(int64(l.FlowEntries), "entry of the flow table written", "entries of the flow table written")
	if l.AskedAll {
		parts = append(parts, "a copy for every server")
	}
	if len(parts) == 0 {
		parts = []string{"nothing"}
	}
	return strings.Join(parts, "; ") + " (in a copy: the balancer's own counters are untouched)"
}
