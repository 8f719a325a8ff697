package trace

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/scheme/model"
	"github.com/fairlead/fairlead/wire"
)

// Bucket is how scheme beamer found the server, and what it tells that one.
type Bucket struct {
	// Number of Of buckets; -1: a join of MPTCP, whose port names the server.
	Number int  `json:"number"`
	Of     int  `json:"of"`
	Join   bool `json:"join"`
	// Current is the slot that has the bucket, Chain those that had it before,
	// newest first.
	Current Owner   `json:"current"`
	Chain   []Owner `json:"chain"`
	// Generation of the bucket table, a serial number.
	Generation uint32 `json:"generation"`
	// AgeMS since the bucket's last move, or since its chain was last known to
	// be needed; ChainMS is how long servers go by it, 0: not known here.
	AgeMS   int64 `json:"age_ms"`
	ChainMS int64 `json:"chain_ms"`
	// Asks is what the server will ask, and what becomes of the packet then.
	Asks string `json:"asks"`
}

// Owner is a server that has or had a bucket.
type Owner struct {
	Slot   uint16 `json:"slot"`
	Server string `json:"server,omitempty"`
}

// bucketOf is nil where scheme beamer found no server.
func (t *Tracer) bucketOf(m model.Result, now uint32) *Bucket {
	if m.Hops == nil {
		return nil
	}
	b := &Bucket{Number: m.Bucket, Join: m.Join, Current: Owner{uint16(m.Slot), t.serverName(m.VIP.ID, uint16(m.Slot))}, Generation: m.Hops.Generation, Chain: []Owner{},
		ChainMS: t.names[m.VIP.ID].ChainTime.Milliseconds()}
	if !m.Join {
		b.Of = m.VIP.Buckets.Len()
	}
	for _, slot := range m.Hops.Previous {
		if slot != wire.NoServer {
			b.Chain = append(b.Chain, Owner{slot, t.serverName(m.VIP.ID, slot)})
		}
	}
	if len(b.Chain) > 0 {
		b.AgeMS = int64(int32(now - m.Hops.Time))
	}
	b.Asks = b.question(m)
	return b
}

func (t *Tracer) serverName(vip uint32, slot uint16) string {
	for _, s := range t.names[vip].Slots {
		if s.Number == slot && s.State != controller.Resting {
			return s.Server
		}
	}
	return ""
}

// question is what the server does with the packet (scheme/beamer, Decide): it
// alone knows its sockets, so what depends on them is said as a question.
func (b *Bucket) question(m model.Result) string {
	udp := m.Parsed.Protocol == wire.ProtoUDP
	quoted := m.Parsed.Quoted
	switch {
	case m.Reason == bpf.ForwardFragment:
		return "nothing: a fragment has no ports, the server takes it"
	case m.Opens:
		return "nothing: it opens a connection, which is the server's that has the bucket now"
	case b.Join:
		return "nothing: the port named the server, which takes it"
	case len(b.Chain) == 0:
		return fmt.Sprintf("nothing: no other server had the bucket lately (unless it knows of a table later than generation %d, or its own health is in doubt)", b.Generation)
	case b.ChainMS > 0 && b.AgeMS > b.ChainMS:
		return "whether the connection is its own; the chain is over, so it takes what is not, too"
	}
	of, own, last := "it has a socket of the connection, or sent its SYN cookie", "takes it", "the stack of the last answers it (TCP: with an RST)"
	if udp {
		of, last = "it has a connected socket, or took a datagram of the flow within chain_time", "it comes back to this server, which takes it"
	}
	if quoted != nil {
		of, last = "the connection that is quoted is its own", "the last takes it"
	}
	return fmt.Sprintf("whether %s: then it %s; else the packet goes on to %s; if it is nobody's, %s", of, own, b.chain(", then "), last)
}

func (b *Bucket) chain(between string) string {
	var names []string
	for _, p := range b.Chain {
		names = append(names, p.text())
	}
	return strings.Join(names, between)
}

func (p Owner) text() string {
	if p.Server == "" {
		return fmt.Sprint("slot ", p.Slot)
	}
	return fmt.Sprintf("slot %d (%s)", p.Slot, p.Server)
}

func (b *Bucket) text() string {
	if b.Join {
		return fmt.Sprintf("an MPTCP join: its port names %s; generation %d", b.Current.text(), b.Generation)
	}
	s := fmt.Sprintf("%d of %d: %s has it", b.Number, b.Of, b.Current.text())
	if len(b.Chain) == 0 {
		return fmt.Sprintf("%s, settled; generation %d", s, b.Generation)
	}
	s += fmt.Sprintf(", before it %s; moved or renewed %s ago", b.chain(", "), seconds(b.AgeMS))
	if b.ChainMS > 0 {
		s += fmt.Sprintf(" (chain_time %s)", seconds(b.ChainMS))
	}
	return fmt.Sprintf("%s; generation %d", s, b.Generation)
}

func seconds(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

// explainBeamer says in words what the general words do not fit.
func explainBeamer(reason bpf.Reason, m model.Result) string {
	switch {
	case reason == bpf.DropNoServer && m.Join:
		return "its port names no server of this VIP"
	case reason == bpf.DropNoServer:
		return "no server has its bucket"
	case m.Hops == nil:
		return ""
	case reason == bpf.Known && m.Join, reason == bpf.ForwardNew && m.Join:
		return "its port, of an MPTCP join, names its server"
	case reason == bpf.Known:
		return "its bucket names its server"
	case reason == bpf.ForwardNew:
		return "it opens a connection: its bucket names its server"
	}
	return ""
}

// switched is the VIP of scheme faild that a packet is for: no balancer sees
// its packets, so nothing that is traced here becomes of them.
func (t *Tracer) switched(p *wire.Parsed) error {
	for _, v := range t.names {
		if v.Scheme.Row().Switched && p.Version != 0 && v.Address == p.Dst {
			return fmt.Errorf("VIP %s (%s) is of scheme faild: switches send its packets to servers, and no balancer sees them. "+
				"`fairlead status SWITCH` shows its servers and buckets, `ip neigh show dev BRIDGE` on the switch the MAC address of each bucket; see docs/faild.md, \"Where does a packet go?\"", v.Name, v.Address)
		}
	}
	return nil
}
