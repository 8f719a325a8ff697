package router

// Inspection is what a router would do here, without doing it.
type Inspection struct {
	View
	// Rules says which of the kernel's rules keep the router from working, and
	// the remedy; empty: none.
	Rules string
	// IPv4, IPv6: the kernel forwards this family from at least one device.
	IPv4, IPv6 bool
	// Several is how many routes have several next hops, to choose among.
	Several int
}

// Inspect looks at the kernel's tables once. It belongs to the calling
// thread's network namespace and changes nothing.
func Inspect(o FollowOptions) (*Inspection, error) {
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	defer k.close()
	var p picture
	for which := range parts {
		if err := p.read(k, which); err != nil {
			return nil, err
		}
	}
	i := &Inspection{}
	if others := p.otherRules(); len(others) > 0 {
		i.Rules = rulesRemedy(others)
		p.rules = nil // and what it would be like without
	}
	f := &Follower{picture: p, inputs: namesOf(o.Interfaces)}
	unfit := f.fits()
	tables, warnings, _ := p.translate(newNumbering(o.Fabric, o.Node, o.Numbers), f.inputs, nil)
	i.View = View{Tables: tables, Warnings: append(warnings, f.missing()...)}
	i.Names, i.MTUs = p.names()
	for _, d := range tables.Devices {
		i.IPv4, i.IPv6 = i.IPv4 || d.IPv4, i.IPv6 || d.IPv6
	}
	for _, r := range tables.Routes {
		if r.Kind == Forward && len(tables.Groups[r.Group]) > 1 {
			i.Several++
		}
	}
	return i, unfit
}
