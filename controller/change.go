package controller

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/vip"
)

// Kind is what a verb does.
type Kind string

const (
	Add     Kind = "add"
	Drain   Kind = "drain"
	Undrain Kind = "undrain"
	Remove  Kind = "remove"
	Weight  Kind = "weight"
	Rotate  Kind = "rotate"
)

// Op is one verb with its arguments.
type Op struct {
	Kind Kind
	// VIP is a name; "" with drain, undrain, remove and weight: every VIP
	// that has the server.
	VIP    string
	Server string
	// Address and API of the server, for add; unset: as another VIP has them.
	Address netip.Addr
	API     string
	Weight  int // add (0: 1) and weight: 1 to 1000
	// Standby: add puts it into the horizon; undrain sets it to work.
	Standby bool
	// Key is rotate's fresh secret: 32 random bytes.
	Key []byte
}

// NotFound is a VIP or server that op names and nobody knows.
type NotFound string

func (n NotFound) Error() string { return string(n) }

// Invalid is an op that is wrong whatever is in force.
type Invalid string

func (i Invalid) Error() string { return string(i) }

// Change is Plan for verbs: what cur is (or is on its way to), changed as ops
// say, all in one series. A series that stopped half way is finished with it.
// Without any, it is what time alone changes: slots whose rest is over.
func Change(cur *Assignment, live LiveCounts, now time.Time, force bool, ops ...Op) (steps []*Assignment, changes []string, err error) {
	if cur == nil {
		return nil, nil, Refusal{"no assignment is in force; run `fairlead apply`"}
	}
	p := &planner{want: asIs(cur), live: live, now: now, force: force, tidies: len(ops) == 0}
	for _, op := range ops {
		err := p.edit(cur, op)
		if refused := (Refusal)(nil); errors.As(err, &refused) {
			p.refused = append(p.refused, refused...)
		} else if err != nil {
			return nil, nil, err
		}
	}
	return p.run(cur)
}

// edit changes what is wanted as op says.
func (p *planner) edit(cur *Assignment, op Op) error {
	switch {
	case op.Kind == Rotate && len(op.Key) < 16:
		return Invalid(fmt.Sprintf("rotate: a key of %d bytes; 32 random ones are needed", len(op.Key)))
	case op.Kind == Rotate:
		if cur.StampEpoch == cur.newest().Epoch { // else the one before is finished
			p.newKey = &Key{Secret: op.Key}
		}
		return nil
	case op.Server == "":
		return Invalid(string(op.Kind) + ": no server named")
	case op.VIP == "" && op.Kind == Add:
		return Invalid("add: no vip named")
	case (op.Kind == Weight || op.Weight != 0) && (op.Weight < 1 || op.Weight > vip.MaxWeight):
		return Invalid(fmt.Sprintf("weight %d: must be 1 to 1000; drain gives a server no new connections", op.Weight))
	}
	found := op.VIP == ""
	done := false
	for _, w := range p.named(op.VIP) {
		found = true
		if op.Kind == Add {
			done = true
			if err := p.add(cur, w, op); err != nil {
				return err
			}
			continue
		}
		if is, err := p.editTier(w, op); is {
			if done = true; err != nil {
				return err
			}
			continue
		}
		if !slices.ContainsFunc(w.members, func(m member) bool { return m.server == op.Server }) {
			continue
		}
		done = true
		if err := p.editVIP(w, op); err != nil {
			return err
		}
	}
	switch {
	case !found:
		return NotFound(fmt.Sprintf("no vip %s; there %s", op.VIP, listNames(p.want)))
	case !done && rests(cur, op):
		return NotFound(fmt.Sprintf("%s was removed, and its slot rests; `fairlead add` brings it back", op.Server))
	case !done && op.VIP == "":
		return NotFound(fmt.Sprintf("no vip has a server %s; `fairlead status` lists them", op.Server))
	case !done:
		w := p.want[slices.IndexFunc(p.want, func(w wanted) bool { return w.vip.Name == op.VIP })]
		names := make([]string, len(w.members))
		for i, m := range w.members {
			names[i] = m.server
		}
		return NotFound(fmt.Sprintf("vip %s has no server %s; it has %s", op.VIP, op.Server, strings.Join(names, ", ")))
	}
	return nil
}

// rests says whether op's server left op's VIP, or any, and has a slot there still.
func rests(cur *Assignment, op Op) bool {
	return slices.ContainsFunc(cur.VIPs, func(v VIP) bool {
		return (op.VIP == "" || v.Name == op.VIP) &&
			slices.ContainsFunc(v.Slots, func(s Slot) bool { return s.Server == op.Server && s.State == Resting })
	})
}

// editTier drains and undrains op.Server where it is a balancer of w's tier two.
func (p *planner) editTier(w *wanted, op Op) (is bool, err error) {
	at := slices.IndexFunc(w.tier, func(m member) bool { return m.server == op.Server })
	switch {
	case at < 0:
		return false, nil
	case op.VIP != "":
		return true, Invalid(fmt.Sprintf("%s is a balancer of tier two, and drains for all VIPs: leave vip %s out", op.Server, op.VIP))
	case op.Kind == Undrain:
		w.tier[at].drain = false
		return true, nil
	case op.Kind != Drain:
		return true, Invalid(fmt.Sprintf("%s is a balancer of tier two: change its entry in the file, then `fairlead apply`", op.Server))
	}
	others := slices.DeleteFunc(slices.Clone(w.tier), func(m member) bool { return m.server == op.Server })
	if !p.force && p.refuseLast(&wanted{vip: w.vip, members: w.tier}, op.Server, others) {
		return true, nil
	}
	w.tier[at].drain = true
	return true, nil
}

// editVIP changes op.Server, which w has, perhaps at two addresses.
func (p *planner) editVIP(w *wanted, op Op) error {
	others := slices.DeleteFunc(slices.Clone(w.members), func(m member) bool { return m.server == op.Server })
	switch {
	case op.Kind == Weight && !w.vip.Policy.Row().Weighted && op.Weight != 1:
		return Refusal{fmt.Sprintf("vip %s: weight %d: policy %s gives every server the same; set policy: wrr in the file and apply", w.vip.Name, op.Weight, w.vip.Policy)}
	case op.Kind == Remove && len(others) == 0 && !p.force:
		p.refuse("vip %s: %s is its last server: nobody would answer; add another before, or --force", w.vip.Name, op.Server)
		return nil
	case (op.Kind == Remove || op.Kind == Drain) && !p.force && p.refuseLast(w, op.Server, others):
		return nil
	case op.Kind == Remove:
		w.members = others
	}
	for i := range w.members {
		m := &w.members[i]
		if m.server != op.Server {
			continue
		}
		switch op.Kind {
		case Drain:
			if m.standby && op.VIP != "" {
				return Refusal{fmt.Sprintf("vip %s: %s is a standby and gets no connections; `fairlead remove` takes it out", w.vip.Name, op.Server)}
			}
			m.drain = !m.standby
		case Undrain:
			m.drain, m.standby = false, false
		case Weight:
			m.weight = op.Weight
		default:
			return Invalid(fmt.Sprintf("%q is no change", op.Kind))
		}
	}
	return nil
}

// refuseLast refuses to take new connections from server where none of the others of w
// takes any. A file that says so is believed (Plan): whoever applies it sees the whole, and
// some changes want all of a VIP's servers drained before.
func (p *planner) refuseLast(w *wanted, server string, others []member) bool {
	takes := func(m member) bool { return !m.drain && !m.standby }
	if slices.ContainsFunc(others, takes) || !slices.ContainsFunc(w.members, func(m member) bool { return m.server == server && takes(m) }) {
		return false
	}
	remedy := "add another before"
	if len(others) > 0 {
		remedy = "undrain " + others[0].server + " before, or add another"
	}
	what := "nobody would answer new clients"
	if w.vip.Chains() {
		what = "it would go on taking them, as its buckets have nowhere to go"
	}
	p.refuse("vip %s: %s is the last of its servers that takes new connections: %s; %s, or --force", w.vip.Name, server, what, remedy)
	return true
}

// named are the wanted VIPs that a verb on the VIP called name ("": any) is
// about: VIPs of scheme faild share the switch's nexthops, and so their pool.
func (p *planner) named(name string) (all []*wanted) {
	faild := slices.ContainsFunc(p.want, func(w wanted) bool { return w.vip.Name == name && w.vip.Scheme.Row().Switched })
	for i := range p.want {
		if w := &p.want[i]; name == "" || w.vip.Name == name || faild && w.vip.Scheme.Row().Switched {
			all = append(all, w)
		}
	}
	return all
}

func listNames(all []wanted) string {
	if len(all) == 0 {
		return "is none"
	}
	s := "are"
	for i, w := range all {
		if i == 10 {
			return s + " and others"
		}
		s += " " + w.vip.Name
	}
	return s
}

// add puts a server into w's pool.
func (p *planner) add(cur *Assignment, w *wanted, op Op) error {
	m := member{server: op.Server, address: op.Address, api: op.API, weight: max(op.Weight, 1), standby: op.Standby}
	if op.Weight == 0 && len(w.members) > 0 && !w.vip.Weighted() {
		m.weight = w.members[0].weight
	}
	if !vip.ServerName(op.Server) {
		return Invalid(fmt.Sprintf("server %s: not a name; %s", op.Server, vip.NameRule))
	}
	inPool := slices.ContainsFunc(w.members, func(o member) bool { return o.address == m.address })
	for i := range cur.VIPs {
		if a := cur.VIPs[i].Address; a == m.address {
			return Invalid(fmt.Sprintf("%s: address %s: vip %s has it; write the server's own", op.Server, a, cur.VIPs[i].Name))
		}
		for _, s := range cur.VIPs[i].Slots {
			if s.Server != op.Server && s.Address == m.address && s.State != Resting && !inPool {
				return Invalid(fmt.Sprintf("%s: address %s: server %s has it; one server has one name", op.Server, s.Address, s.Server))
			}
			if s.Server != op.Server || m.address.IsValid() && m.address != s.Address {
				continue
			}
			m.address = s.Address
			if m.api == "" {
				m.api = s.API
			}
		}
	}
	if !m.address.IsValid() {
		return NotFound(fmt.Sprintf("server %s is in no vip yet: where is it? name its address", op.Server))
	}
	if m.api == "" {
		m.api = config.DefaultAPI(op.Server)
	}
	if wrong, remedy := vip.Unicast(m.address); wrong != "" {
		return Invalid(fmt.Sprintf("%s: address %s: %s; %s", op.Server, m.address, wrong, remedy))
	}
	if m.api == config.NoAgent && w.vip.Chains() {
		return Refusal{fmt.Sprintf("vip %s: %s: its api is none: without the agent nobody knows whose a packet is, which scheme %s needs; run `fairlead host` there and name its api", w.vip.Name, op.Server, w.vip.Scheme)}
	}
	if m.api == config.NoAgent && w.vip.Cookies() {
		return Refusal{fmt.Sprintf("vip %s: %s: its api is none: without the agent nobody stamps cookies, which scheme cheetah needs; run `fairlead host` there and name its api", w.vip.Name, op.Server)}
	}
	if !w.vip.Policy.Row().Weighted && m.weight != 1 {
		return Refusal{fmt.Sprintf("vip %s: weight %d: policy %s gives every server the same; set policy: wrr in the file and apply", w.vip.Name, m.weight, w.vip.Policy)}
	}
	for i, other := range w.members {
		switch {
		case other.server == m.server && other.address == m.address && other.standby && op.Standby && op.API != "" && op.API != other.api:
			// Nothing runs by it yet: it may have come with the wrong one.
			w.members[i].api = op.API
			return nil
		case other.server == m.server && other.address == m.address && unfinished(cur, w, m):
			return nil // an add that stopped half way goes on
		case other.server == m.server && other.drain:
			return Refusal{fmt.Sprintf("vip %s: %s is in it and drains; `fairlead undrain` gives it new connections", w.vip.Name, m.server)}
		case other.server == m.server && other.standby:
			return Refusal{fmt.Sprintf("vip %s: %s is in it as a standby; `fairlead undrain` sets it to work, `fairlead add --standby --agent` changes where its agent is", w.vip.Name, m.server)}
		case other.server == m.server:
			return Refusal{fmt.Sprintf("vip %s: %s is in it already, at %s", w.vip.Name, m.server, other.address)}
		case other.address == m.address:
			return Refusal{fmt.Sprintf("vip %s: %s is there already, as %s", w.vip.Name, m.address, other.server)}
		}
	}
	w.members = append(w.members, m)
	return nil
}

func unfinished(cur *Assignment, w *wanted, m member) bool {
	v := cur.byIdentity(w.vip.identity())
	return v != nil && holds(v.Slots, &m, Joining)
}
