package paths

import (
	"fmt"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// chooser looks for values of the free fields.
type chooser struct {
	net     *Net
	request *Request
	flow    pathsel.Flow
	steps   []pathsel.Step
	left    int                     // flows that may still be yielded
	yield   func(pathsel.Flow) bool // nil: last is all that is wanted
	last    pathsel.Flow            // that was yielded
	found   bool                    // there was one
	taken   int                     // that would do, but are taken
}

// freeTries bounds how many random selectors are looked at for one flow if
// both ports are free: a quarter of the space for each port leaves one in 16.
const freeTries = 1024

func (c *chooser) choose(p *Path) (err error) {
	if c.flow, err = c.net.flow(p, c.request); err != nil {
		return err
	}
	if c.steps, err = c.net.steps(p, c.request.TTL); err != nil {
		return err
	}
	f, six := &c.flow, c.flow.Dst.Is6()
	field := c.net.selector.Field(six)
	free := f.SrcPort == 0
	switch {
	case field == pathsel.FlowLabel:
		if f.SrcPort == 0 || f.DstPort == 0 {
			if f.Proto == TCP || f.Proto == UDP {
				return fmt.Errorf("ports: field %s selects, and the ports are hashed with the addresses; name both", field)
			}
		}
		return c.random()
	case field == pathsel.SourcePort && f.DstPort == 0:
		return fmt.Errorf("destination port: field %s selects, and the destination port is hashed with the addresses; name it", field)
	case f.DstPort == 0 && free:
		return c.random()
	case free:
		return c.search()
	case f.DstPort == 0:
		return c.destinations()
	}
	return c.fixed()
}

// offer hands out a flow that takes the path; false: enough.
func (c *chooser) offer(f pathsel.Flow) bool {
	if c.request.Taken != nil && c.request.Taken(f) {
		c.taken++
		return true
	}
	c.found, c.last = true, f
	c.left--
	return (c.yield == nil || c.yield(f)) && c.left > 0
}

// random tries selectors that differ in the digits that no step needs.
func (c *chooser) random() error {
	var seen map[pathsel.Flow]bool // only a caller that wants several may see one twice
	if c.left > 1 {
		seen = map[pathsel.Flow]bool{}
	}
	random := c.request.Random
	for range freeTries {
		f := c.flow
		if err := c.net.selector.Encode(&f, c.steps, random); err != nil {
			return c.explain(err)
		}
		random = random*6364136223846793005 + 1442695040888963407
		if seen[f] || !within(f.SrcPort, c.request.SrcPorts) || !within(f.DstPort, c.request.DstPorts) {
			continue
		}
		if !c.offer(f) {
			return nil
		}
		if seen != nil {
			seen[f] = true
		}
	}
	return c.none(fmt.Sprintf("%d selectors that were tried", freeTries))
}

func within(port uint16, bounds [2]uint16) bool {
	return bounds == [2]uint16{} || port >= bounds[0] && port <= bounds[1]
}

// bounds of the ports to choose from.
func bounds(b [2]uint16) (from, to uint16) {
	if b == [2]uint16{} {
		return FirstPort, LastPort
	}
	return b[0], b[1]
}

// search looks for source ports, beginning at a random one.
func (c *chooser) search() error {
	from, to := bounds(c.request.SrcPorts)
	if from > to {
		return fmt.Errorf("source ports %d-%d: the first is above the last", from, to)
	}
	begin := from + uint16(c.request.Random%(uint64(to-from)+1))
	enough := false
	yield := func(port uint16) bool {
		f := c.flow
		f.SrcPort = port
		enough = !c.offer(f)
		return !enough
	}
	err := c.net.selector.Search(c.flow, c.steps, begin, to, yield)
	if !enough && begin > from {
		if second := c.net.selector.Search(c.flow, c.steps, from, begin-1, yield); err == nil || second == nil {
			err = second
		}
	}
	switch {
	case c.found:
		return nil
	case c.taken == 0 && err != nil:
		// In the words of one search over all of the range.
		return c.explain(c.net.selector.Search(c.flow, c.steps, from, to, yield))
	}
	return c.none(fmt.Sprintf("the source ports %d to %d towards port %d", from, to, c.flow.DstPort))
}

// destinations looks for a destination port to a source port that is given.
func (c *chooser) destinations() error {
	from, to := bounds(c.request.DstPorts)
	if from > to {
		return fmt.Errorf("destination ports %d-%d: the first is above the last", from, to)
	}
	size := uint64(to-from) + 1
	for i := range size {
		f := c.flow
		f.DstPort = from + uint16((c.request.Random+i)%size)
		if f.DstPort != 0 && c.takes(f) && !c.offer(f) {
			return nil
		}
	}
	return c.none(fmt.Sprintf("the destination ports %d to %d from port %d", from, to, c.flow.SrcPort))
}

// fixed checks a flow that leaves nothing to choose.
func (c *chooser) fixed() error {
	if c.takes(c.flow) {
		c.offer(c.flow)
	}
	if c.found {
		return nil
	}
	if c.taken > 0 {
		return c.none("the ports that were named")
	}
	return fmt.Errorf("%w: ports %d and %d do not lead over this path; leave one of them free (`fairlead path of` shows where they lead)",
		pathsel.ErrNoSelector, c.flow.SrcPort, c.flow.DstPort)
}

// takes tells whether the flow makes every step.
func (c *chooser) takes(f pathsel.Flow) bool {
	for _, s := range c.steps {
		if port, ok := c.net.selector.Digit(f, s.TTL); !ok || port != int(s.Port) {
			return false
		}
	}
	return true
}

// none is the error where nothing was found among what; nil if there was.
func (c *chooser) none(what string) error {
	switch {
	case c.found:
		return nil
	case c.taken > 0:
		return fmt.Errorf("%w is free: of %s, all %d that take this path from %s to %s are taken; release flows, allow more source ports, or use another destination port",
			pathsel.ErrNoSelector, what, c.taken, c.flow.Src, c.flow.Dst)
	}
	return fmt.Errorf("%w: none of %s takes the path's %d choices from %s to %s; allow more ports, leave the other port free, or use a smaller radix",
		pathsel.ErrNoSelector, what, len(c.steps), c.flow.Src, c.flow.Dst)
}

// explain names the ends in an error of pathsel.
func (c *chooser) explain(err error) error {
	return fmt.Errorf("from %s to %s: %w", c.flow.Src, c.flow.Dst, err)
}
