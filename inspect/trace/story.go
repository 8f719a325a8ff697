package trace

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/scheme/model"
	"github.com/fairlead/fairlead/scheme/seats"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

const protoTCP = wire.ProtoTCP

// Story is what happened to one packet. Its JSON form is stable.
type Story struct {
	Program Program `json:"program"`
	// Number is the packet's in a capture, from 1; 0: described in words.
	Number int `json:"number,omitempty"`
	// SharedMS is the shared clock at which the packet came in.
	SharedMS uint32 `json:"shared_ms"`
	Packet   Packet `json:"packet"`
	VIP      *VIP   `json:"vip"`
	// Cookie is there where one was decoded, Policy or Fallback where they
	// chose the server.
	Cookie   *Cookie   `json:"cookie"`
	Policy   *Policy   `json:"policy"`
	Fallback *Fallback `json:"fallback"`
	// Hash is there where the consistent hash was asked, Flow where the flow
	// table was.
	Hash *Hash `json:"hash"`
	Flow *Flow `json:"flow"`
	// Bucket is there where scheme beamer found a server.
	Bucket  *Bucket `json:"bucket"`
	Server  *Server `json:"server"`
	Outer   *Outer  `json:"outer"`
	Verdict Verdict `json:"verdict"`
	Left    Left    `json:"left"`
	// Output is the frame that is sent, in hex.
	Output string `json:"output,omitempty"`
	// Disagreement is set where program and model differ: a defect.
	Disagreement string `json:"disagreement,omitempty"`
}

// Packet is the packet as it came in.
type Packet struct {
	Length    int      `json:"length"` // from layer 3 on
	VLAN      uint16   `json:"vlan,omitempty"`
	Protocol  string   `json:"protocol"`
	Src       string   `json:"src,omitempty"`
	Dst       string   `json:"dst,omitempty"`
	Flags     []string `json:"flags,omitempty"`
	TSVal     *uint32  `json:"ts_val,omitempty"`
	TSEcr     *uint32  `json:"ts_ecr,omitempty"`
	Fragment  bool     `json:"fragment,omitempty"`
	ICMP      string   `json:"icmp,omitempty"`
	Quotes    *Packet  `json:"quotes,omitempty"`
	Malformed string   `json:"malformed,omitempty"`
	// WrongChecksums does not change the way of a packet: whoever it is for
	// drops it.
	WrongChecksums []string `json:"wrong_checksums,omitempty"`
}

// VIP that the packet is for.
type VIP struct {
	ID       uint32 `json:"id"`
	Name     string `json:"name,omitempty"`
	Address  string `json:"address"`
	Port     uint16 `json:"port"` // 0: all
	Protocol string `json:"protocol"`
	Scheme   string `json:"scheme"`
	Policy   string `json:"policy"`
}

// Cookie is what the timestamp says.
type Cookie struct {
	Bits  int    `json:"bits"`
	Field uint32 `json:"field"`
	Epoch uint32 `json:"epoch_parity"`
	// Live: cookies of that parity are decoded.
	Live bool   `json:"live"`
	Slot uint32 `json:"slot"`
	// AgeMS: stamped so long ago, by the shared clock.
	AgeMS int32 `json:"age_ms"`
	// Valid: the slot names a server.
	Valid bool `json:"valid"`
	// Seat is what the cookie, or the SYN, has at this balancer (cheetah-stateful).
	Seat *Seat `json:"seat,omitempty"`
}

// Seat is a connection's place in the balancer's table.
type Seat struct {
	Number uint32 `json:"number"` // 0: none
	State  string `json:"state"`  // before the packet
}

// Policy chose the server.
type Policy struct {
	Name    string `json:"name"`
	Entries int    `json:"entries"` // servers (weighted) that take new connections
}

// Fallback found the server without a cookie; Hash and Flow say more.
type Fallback struct {
	// Flow: the flow table knew it. Else Row of Rows of the consistent hash.
	Flow bool `json:"flow"`
	Row  int  `json:"row"`
	Rows int  `json:"rows"`
}

// Server that gets the packet.
type Server struct {
	Slot       int    `json:"slot"`
	Name       string `json:"name,omitempty"`
	State      string `json:"state,omitempty"`
	Address    string `json:"address"`
	Line       int    `json:"line"`
	Forwarding string `json:"forwarding"`
	Interface  string `json:"interface,omitempty"`
	Ifindex    uint32 `json:"ifindex"`
	NextHop    string `json:"next_hop_mac"`
	VLAN       uint16 `json:"vlan,omitempty"`
	MTU        int    `json:"mtu"` // largest inner packet
	// Steer is there where the line is steered.
	Steer *Steer `json:"steer,omitempty"`
}

// Steer is how a tunnel's path through the fabric was chosen.
type Steer struct {
	Part int `json:"part"` // of the server's connections, 0 to 63
	// ByHash: nothing was chosen for this part (yet).
	ByHash bool `json:"by_hash"`
}

// Outer is the encapsulation of the frame that the program made.
type Outer struct {
	Src   string `json:"src"`
	Dst   string `json:"dst"`
	Port  uint16 `json:"source_port,omitempty"` // gue
	Label uint32 `json:"flow_label,omitempty"`  // over IPv6
	Bytes int    `json:"bytes"`                 // added before the packet
	Hex   string `json:"hex"`
}

// Verdict is the end.
type Verdict struct {
	// Action of the test run, which comes in on the loopback interface: where
	// the balancer says XDP_TX (out where it came in), a test run says
	// XDP_REDIRECT.
	Action  string `json:"action"`
	Reason  string `json:"reason"`
	Explain string `json:"explain"`
}

// Left is what the packet left behind in the copy, and would have left in
// the balancer.
type Left struct {
	Reason          bool   `json:"reason_counted"` // false: a known connection counts in its line only
	LinePackets     uint64 `json:"line_packets"`
	LineBytes       uint64 `json:"line_bytes"`
	OpenConnections int32  `json:"open_connections"`
	NewConnections  uint64 `json:"new_connections"`
	Fallback        uint64 `json:"fallback"`
	Tracked         uint64 `json:"tracked"`
	FlowFull        uint64 `json:"flow_full"`
	FlowReplaced    uint64 `json:"flow_replaced"`
	FlowHits        uint64 `json:"flow_hits"`
	BadCookies      uint64 `json:"bad_cookies"`
	Dropped         uint64 `json:"dropped"`
	FlowEntries     int    `json:"flow_entries"`
	AskedAll        bool   `json:"asked_all_servers"`
}

func (t *Tracer) story(tables *model.Tables, m model.Result, run lb.TwinRun, left lb.TwinLeft, now uint32) *Story {
	s := &Story{Program: t.program, SharedMS: now, Packet: packetOf(m.Parsed),
		Verdict: Verdict{run.ActionName(), model.ReasonName(run.Reason), explain(run.Reason, m)},
		Left: Left{Reason: run.Reason != bpf.Known, LinePackets: left.Packets, LineBytes: left.Bytes, OpenConnections: left.Open,
			NewConnections: left.NewConns, Fallback: left.Fallback, FlowHits: left.FlowHits, BadCookies: left.BadCookies,
			Dropped: left.Dropped, FlowEntries: left.Flows, AskedAll: run.Ask != nil,
			Tracked: left.Tracked, FlowFull: left.FlowFull, FlowReplaced: left.FlowReplaced}}
	if m.VIP != nil {
		s.VIP = &VIP{m.VIP.ID, t.names[m.VIP.ID].Name, m.VIP.Addr.String(), m.VIP.Port, protocolName(m.VIP.Proto), string(m.VIP.Scheme), m.VIP.Policy}
		if name := t.names[m.VIP.ID]; m.Join && name.Port != 0 { // not the address's entry, by which it was found
			s.VIP.Port, s.VIP.Protocol = name.Port, name.Protocol
		}
	}
	if c := m.Cookie; c != nil {
		valid := c.Live && c.Slot < m.VIP.Slots && tables.Lines[m.VIP.FirstLine+c.Slot].Forwarding != ""
		s.Cookie = &Cookie{m.VIP.Layout.Bits, c.Field, c.Epoch, c.Live, c.Slot, c.AgeMS, valid, seatOf(m)}
	}
	// Only a policy's table: the consistent hash speaks for itself.
	if run.Reason == bpf.ForwardNew && m.VIP != nil && m.VIP.Scheme.Row().Finds == vip.ByCookie {
		s.Policy = &Policy{m.VIP.Policy, len(m.VIP.NewTable)}
	}
	s.Hash, s.Flow = hashOf(m), flowOf(m, left, run.Share != nil, now)
	s.Bucket = t.bucketOf(m, now)
	s.Fallback = fallbackOf(m, run.Reason, s.Hash, s.Flow)
	// The server is the one whose line the program counted in; where it
	// dropped the packet on the way, the one that the model says.
	line := left.Line
	if line < 0 {
		line = m.Line
	}
	if line >= 0 && m.VIP != nil {
		s.Server = t.server(tables, m, line)
	}
	if run.Verdict() == model.Send {
		s.Output = hex.EncodeToString(run.Output)
		if left.Line >= 0 {
			s.Outer = outerOf(run.Output, tables.Lines[left.Line])
		}
	}
	s.Disagreement = disagreement(m, run, left)
	return s
}

func seatOf(m model.Result) *Seat {
	switch s := m.Seat; {
	case s == nil:
		return nil
	case s.Outcome == seats.None:
		return &Seat{0, "none: its partition was full"}
	case s.Outcome == seats.Wrong:
		return &Seat{s.Number, "not its own: it sat at another balancer, or its connection is over"}
	default:
		return &Seat{s.Number, strings.TrimPrefix(s.Was.State().String(), "seat_")}
	}
}

// explain says the reason in words; what is known, by what it is known.
func explain(reason bpf.Reason, m model.Result) string {
	if m.VIP != nil && m.VIP.Scheme.Row().Hops {
		if words := explainBeamer(reason, m); words != "" {
			return words
		}
	}
	switch {
	case reason != bpf.Known:
	case m.FlowHit:
		return "the flow table names its server"
	case m.Flow != nil:
		return "the consistent hash names its server"
	case m.Cookie != nil:
		return "its cookie names its server"
	}
	return model.Explain(reason)
}

func disagreement(m model.Result, run lb.TwinRun, left lb.TwinLeft) string {
	switch {
	case m.Reason != run.Reason || m.Verdict != run.Verdict():
		return fmt.Sprintf("the program says %v (%s), the model %v (%v)", model.ReasonName(run.Reason), run.ActionName(), model.ReasonName(m.Reason), m.Verdict)
	case m.Verdict == model.Send && string(m.Output) != string(run.Output):
		return fmt.Sprintf("the program sends %x, the model %x", run.Output, m.Output)
	case m.Tracked != (left.Tracked > 0) || m.FlowHit != (left.FlowHits > 0) || (m.Share != nil) != (run.Share != nil):
		return fmt.Sprintf("flow table: the program tracked %d, hit %d, told others %v; the model %v, %v, %v",
			left.Tracked, left.FlowHits, run.Share != nil, m.Tracked, m.FlowHit, m.Share != nil)
	case left.Line >= 0 && left.Line != m.Line:
		return fmt.Sprintf("the program counts in line %d, the model in %d", left.Line, m.Line)
	}
	return ""
}

func (t *Tracer) server(tables *model.Tables, m model.Result, line int) *Server {
	l, v := tables.Lines[line], m.VIP
	s := &Server{Slot: line - int(v.FirstLine), Address: l.Addr.String(), Line: line, Forwarding: string(cmp.Or(l.Forwarding, "none")),
		Interface: interfaceName(l.Ifindex, l.MACSrc), Ifindex: l.Ifindex, NextHop: macString(l.MACDst), VLAN: l.VLAN, MTU: l.MTU}
	if part, byHash, ok := tables.Steered(&l, m.Hash); ok {
		s.Steer = &Steer{part, byHash}
	}
	for _, x := range t.names[v.ID].Slots {
		if int(x.Number) == s.Slot {
			s.Name, s.State = x.Server, string(x.State)
		}
	}
	return s
}

func macString(m wire.MAC) string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// outerOf reads the headers that the program put before the packet; nil for
// l2, which puts none.
func outerOf(frame []byte, l model.Line) *Outer {
	if !l.Forwarding.Row().Tunnel {
		return nil
	}
	p := wire.Parse(frame)
	inner, o, err := wire.Decapsulate(p.Packet())
	if err != nil {
		return &Outer{Hex: "unreadable: " + err.Error()}
	}
	n := len(p.Packet()) - len(inner)
	label := uint32(0)
	if p.Version == 6 {
		label = binary.BigEndian.Uint32(p.Packet()) & 0xfffff
	}
	return &Outer{o.Src.String(), o.Dst.String(), o.SrcPort, label, n, hex.EncodeToString(p.Packet()[:n])}
}

func protocolName(p uint8) string {
	if n, ok := map[uint8]string{wire.ProtoTCP: "tcp", wire.ProtoUDP: "udp", wire.ProtoICMP: "icmp", wire.ProtoICMPv6: "icmpv6"}[p]; ok {
		return n
	}
	return fmt.Sprint("ip protocol ", p)
}

func packetOf(p *wire.Parsed) Packet {
	k := Packet{Length: p.TotalLen, VLAN: p.VLAN, Fragment: p.Fragmented(), WrongChecksums: p.ChecksumErrors()}
	if p.Err != nil {
		k.Malformed = p.Err.Error()
	}
	if p.Version == 0 || !p.Src.IsValid() {
		k.Protocol = fmt.Sprintf("ethertype %#04x", p.EtherType)
		k.Length = max(len(p.Frame)-p.L3, 0)
		return k
	}
	k.Protocol = protocolName(p.Protocol)
	k.Src, k.Dst = p.Src.String(), p.Dst.String()
	ports := p.FragmentOffset == 0 && (p.Protocol == wire.ProtoTCP || p.Protocol == wire.ProtoUDP)
	if ports {
		k.Src, k.Dst = p.Source().String(), p.Destination().String()
	}
	if ports && p.Protocol == wire.ProtoTCP {
		k.Flags = flagList(p.Flags)
		if p.Timestamp != nil {
			k.TSVal, k.TSEcr = &p.Timestamp.Val, &p.Timestamp.Ecr
		}
	}
	if p.Protocol == wire.ProtoICMP || p.Protocol == wire.ProtoICMPv6 {
		k.ICMP = fmt.Sprintf("type %d code %d", p.ICMPType, p.ICMPCode)
		if p.Quoted != nil {
			q := packetOf(p.Quoted)
			k.Quotes = &q
		}
	}
	return k
}

func flagList(flags uint8) (list []string) {
	for i, name := range strings.Fields("fin syn rst psh ack urg ece cwr") {
		if flags>>i&1 != 0 {
			list = append(list, name)
		}
	}
	return list
}
