package trace

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/scheme/model"
	"github.com/fairlead/fairlead/vip"
)

// Hash is what the VIP's consistent hash says of the packet.
type Hash struct {
	Form string `json:"form"` // table or anchor
	// Row of Rows: of the table; of Anchor the first bucket of its capacity.
	Row  int `json:"row"`
	Rows int `json:"rows"`
	// Path are the buckets that Anchor's walk drew; the last takes new
	// connections.
	Path []int `json:"path,omitempty"`
	// Slot takes new connections, Held holds earlier ones that were never
	// tracked; -1: no server does. Track: a change that may come moves it.
	Slot  int  `json:"slot"`
	Held  int  `json:"held"`
	Track bool `json:"track"`
	// By is which of the two the packet went by.
	By string `json:"by"` // slot or held
}

// Flow is what the flow table knows of the packet's connection, and what the
// packet made of it.
type Flow struct {
	Key   string `json:"key"`
	Event string `json:"event"` // open, data, close or peek (an ICMP error)
	// Before is the live entry that was there, After the one that is there
	// now; null: none.
	Before *Entry `json:"before"`
	After  *Entry `json:"after"`
	// Followed: the packet goes where the entry says. Why says why not, or
	// why an entry was made or none.
	Followed bool   `json:"followed"`
	Why      string `json:"why"`
	Made     bool   `json:"made"`
	// Replaced: in place of a live one of another flow. Refused: none was
	// made though one was wanted, as its set is full.
	Replaced bool `json:"replaced"`
	Refused  bool `json:"refused"`
	// Shared: the other balancers are told.
	Shared bool `json:"shared"`
}

// Entry of the flow table.
type Entry struct {
	Slot  int    `json:"slot"`
	State string `json:"state"` // new, confirmed, fading or datagram
	// AgeMS since its last packet and LimitMS after which it is forgotten,
	// both in steps of 1,024.
	AgeMS   int64 `json:"age_ms"`
	LimitMS int64 `json:"limit_ms"`
}

func entryOf(e jet.Entry, tcp bool, now uint32) *Entry {
	age, known := int64(int16(uint16(now>>10)-e.Time())), int64(e.State().Known(tcp))
	if e.State() == jet.New && (!tcp || age >= bpf.FlowAged) {
		age, known = age-bpf.FlowAged, known-bpf.FlowAged
	}
	return &Entry{e.Slot(), e.State().String(), age * jet.Unit, known * jet.Unit}
}

func hashOf(m model.Result) *Hash {
	p := m.Place
	if p == nil {
		return nil
	}
	h := &Hash{Form: "table", Slot: p.Slot, Held: p.Held, Track: p.Track, By: "held"}
	if p.New {
		h.By = "slot"
	}
	switch t := m.VIP.Hash.(type) {
	case *chash.Table:
		h.Rows = len(t.Entries)
	case *chash.AnchorTable:
		h.Form, h.Rows, h.Path = "anchor", len(t.Entries), t.Path(m.Hash)
	}
	h.Row = hash.Row(m.Hash, h.Rows)
	return h
}

func flowOf(m model.Result, left lb.TwinLeft, shared bool, now uint32) *Flow {
	f := m.Flow
	if f == nil {
		return nil
	}
	s := &Flow{Key: fmt.Sprintf("%016x", f.X), Event: [...]string{"open", "data", "close", "peek"}[f.Event], Followed: m.FlowHit,
		Made: left.Tracked > 0, Replaced: left.FlowReplaced > 0, Refused: left.FlowFull > 0, Shared: shared, Why: why(m)}
	if f.Found {
		s.Before = entryOf(f.Entry, f.TCP, now)
	}
	if f.Found || m.Tracked {
		s.After = entryOf(f.Now, f.TCP, now)
	}
	return s
}

// why says why an entry was followed or not, made or not.
func why(m model.Result) string {
	f := m.Flow
	stale := ""
	if f.Found && !m.FlowHit {
		stale = "the entry is not followed, as " + staleness(f) + "; "
	}
	switch {
	case m.FlowHit && f.Event == jet.Open && f.Line&jet.Closed != 0 && f.Entry.State() != jet.New:
		return "the entry names the server, which takes no new connections: but the one before may be alive, and this one forged"
	case m.FlowHit && f.Event == jet.Open && f.TCP && f.Entry.State() == jet.Fading:
		return "a connection before this one ended at the entry's server, which takes new ones: it opens there"
	case m.FlowHit:
		return "the entry names the server"
	case m.Place == nil && m.Reason == bpf.DropNoServer:
		return stale + "no server takes new connections"
	case m.Place == nil:
		return stale + "only the servers can know whose it is"
	case m.Line < 0:
		return stale + "no server takes it, so there is nothing to remember"
	case f.Event == jet.Close:
		return stale + "the end of a connection makes no entry"
	case f.Event == jet.Peek:
		return stale + "an ICMP error makes no entry"
	case !f.Enters && m.Place.Track:
		return stale + "a fragment of TCP has no ports by which its connection could be known"
	case !f.Enters:
		return "no change that may come moves it: it need not be remembered"
	case f.Inserted == jet.Full && f.Event == jet.Open && !m.Place.New:
		return "it must be remembered, but all seven entries of its set are live and confirmed (limits.flows): " +
			"it goes where its next packet will, to the server that holds earlier ones"
	case f.Inserted == jet.Full:
		return "it must be remembered, but all seven entries of its set are live and confirmed (limits.flows)"
	case stale != "":
		return stale + "a new one takes its place"
	case m.VIP.Scheme.Row().Tracks == vip.All:
		return string(m.VIP.Scheme) + " remembers every connection"
	case m.VIP.TrackAll && !m.Place.Track:
		return "it must be remembered: every connection of this VIP must, until its tables are those of before again"
	case m.Place.Slot != m.Place.Held:
		return fmt.Sprintf("it must be remembered: new connections go to slot %d, earlier ones are held by slot %d", m.Place.Slot, m.Place.Held)
	}
	return "it must be remembered: a server of the horizon would take it"
}

// staleness is why an entry is not followed.
func staleness(f *model.Flow) string {
	switch {
	case f.Line&jet.NoServer != 0:
		return "its slot names no server any more"
	case f.Line&jet.Down != 0:
		return "its server is down"
	}
	return "its server takes no new connections"
}

func (h *Hash) text() string {
	var b strings.Builder
	if h.Form == "table" {
		fmt.Fprintf(&b, "row %d of %d", h.Row, h.Rows)
	} else {
		fmt.Fprintf(&b, "anchor, %d buckets: bucket %s", h.Rows, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(h.Path)), ", "), "[]"))
		if len(h.Path) == 0 {
			b.WriteString("none")
		}
	}
	fmt.Fprintf(&b, "; new connections: %s, earlier ones: %s", slotText(h.Slot), slotText(h.Held))
	if h.Track {
		b.WriteString("; a change that may come moves it")
	}
	return b.String()
}

func slotText(slot int) string {
	if slot < 0 {
		return "no server"
	}
	return fmt.Sprint("slot ", slot)
}

func (f *Flow) text() string {
	var b strings.Builder
	if f.Before == nil {
		b.WriteString("no entry")
	} else {
		fmt.Fprintf(&b, "entry %s", f.Before.text())
	}
	fmt.Fprintf(&b, "; %s", f.Why)
	if f.After != nil && (f.Before == nil || *f.Before != *f.After) {
		fmt.Fprintf(&b, "; now %s", f.After.text())
	}
	if f.Replaced {
		b.WriteString(", in place of a live one of another flow")
	}
	if f.Shared {
		b.WriteString("; the other balancers are told")
	}
	return b.String()
}

func (e *Entry) text() string {
	return fmt.Sprintf("%s to slot %d, %d s old (limit %d s)", e.State, e.Slot, e.AgeMS/1000, e.LimitMS/1000)
}

// fallbackReasons are those of packets without a cookie, in whatever scheme.
var fallbackReasons = []bpf.Reason{bpf.ForwardNoTimestamp, bpf.ForwardUDP, bpf.ForwardBadCookie, bpf.ForwardStateless,
	bpf.ForwardFragment, bpf.ForwardICMP}

// fallbackOf is how a packet without a cookie found its server; nil: it had
// one, or the policy chose.
func fallbackOf(m model.Result, reason bpf.Reason, h *Hash, f *Flow) *Fallback {
	if !slices.Contains(fallbackReasons, reason) || h == nil && f == nil {
		return nil
	}
	b := &Fallback{}
	if f != nil {
		b.Flow = f.Followed
	}
	if h != nil {
		b.Row, b.Rows = h.Row, h.Rows
	}
	return b
}
