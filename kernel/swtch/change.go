package swtch

import (
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A change is sent as one batch. The kernel may refuse any message of it and
// go on behind it; then what there is now is read, and
//
//	forward: what is missing is sent again, at last one by one, taking away
//	         what cannot be replaced;
//	back:    if that fails, what was there before is brought back.
//
// Each nexthop's MAC is whole at any time, so that whatever stands meanwhile,
// packets go to a server that has, or knows who has, their connections.

// attempts forward, the batch itself included.
const attempts = 3

// change makes the kernel as the plan, brought up to date, says.
func (s *Switch) change() error {
	want, err := s.want()
	if err != nil {
		return err
	}
	before := s.have
	steps := ours(difference(before, want))
	if len(steps) == 0 {
		s.have, s.installed = want, true
		return nil
	}
	start := time.Now()
	err = s.kernel.execute(messages(steps))
	if err != nil {
		err = s.forward(want, err)
	}
	if err != nil {
		s.back(before)
		return err
	}
	s.counts.lastChange = time.Since(start)
	s.repointed(before, steps)
	s.have, s.installed = want, true
	return nil
}

// want is what the kernel shall have, and marks MACs that go out of use as
// lingering.
func (s *Switch) want() (objects, error) {
	p, now := &s.plan, s.o.Now()
	macs, used, err := s.desired.NextHops(s.rows)
	if err != nil {
		return objects{}, err
	}
	p.vips, p.macs, p.bridge, p.table = s.desired.VIPs, macs, s.links.bridge, uint32(s.o.AnnounceTable)
	if announce := !s.drained && (s.healthy || p.announce); announce != p.announce {
		p.announce, s.fixed = announce, objects{}
	}
	if s.drained {
		p.announce = false
	}
	if s.fixed.empty() {
		s.fixed = p.fixed()
	}
	p.lingering = s.lingering
	o := s.fixed
	p.moving(&o, used)
	for mac := range s.used {
		if !used[mac] {
			s.lingering[mac] = now.Add(lingerTime)
			p.entry(&o, mac)
		}
	}
	for mac, until := range s.lingering {
		if !now.Before(until) || used[mac] {
			delete(s.lingering, mac)
			if !used[mac] {
				delete(o[kindBridge], key{kind: kindBridge, mac: mac})
			}
		}
	}
	s.used = used
	return o, nil
}

// forward goes on where a batch was refused in part.
func (s *Switch) forward(want objects, err error) error {
	for try := 2; try <= attempts; try++ {
		s.counts.retries++
		f, readErr := s.read()
		if readErr != nil {
			err = fmt.Errorf("%w; then %w", err, readErr)
			continue
		}
		steps := ours(difference(f.objects, want))
		if len(steps) == 0 {
			return nil // what was refused had come about otherwise
		}
		s.log.Warn("the kernel refused a change in part; going on", "try", try, "left", len(steps), "first", steps[0].String(), "err", err)
		if try < attempts {
			err = s.kernel.execute(messages(steps))
		} else {
			err = s.oneByOne(steps)
		}
		if err == nil {
			return nil
		}
	}
	return err
}

// oneByOne names the step that is refused.
func (s *Switch) oneByOne(steps []step) error {
	for _, st := range steps {
		err := s.kernel.execute(messages([]step{st}))
		if err != nil && !st.remove {
			// Some things cannot be replaced by others: a blackhole by a
			// gateway, for example.
			away := st
			away.remove = true
			if s.kernel.execute(messages([]step{away})) == nil {
				err = s.kernel.execute(messages([]step{st}))
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", st, err)
		}
	}
	return nil
}

// back brings back what was there before a change that failed. What cannot be
// brought back, reconciling tries again every second.
func (s *Switch) back(before objects) {
	s.counts.rollbacks++
	f, err := s.read()
	if err == nil {
		err = s.kernel.execute(messages(ours(difference(f.objects, before))))
	}
	f, readErr := s.read()
	if readErr != nil {
		s.installed = false // nothing is known: nobody else's change is, either
		s.log.Error("a change failed midway, and what there is now cannot be read; trying again every second", "err", errors.Join(err, readErr))
		return
	}
	s.have = f.objects
	if left := ours(difference(f.objects, before)); len(left) > 0 {
		s.log.Error("a change failed midway and what was there before could not be brought back at once; trying again every second", "left", len(left), "first", left[0].String(), "err", err)
		return
	}
	s.log.Warn("a change failed; the kernel is as it was before")
}

func (s *Switch) repointed(before objects, steps []step) {
	for _, st := range steps {
		if st.key.kind == kindNeighbour && !st.remove {
			if v, ok := before[kindNeighbour][st.key]; ok && v.mac != st.value.mac {
				s.counts.repointed++
			}
		}
	}
}

func messages(steps []step) []netlink.Message {
	m := make([]netlink.Message, len(steps))
	for i, st := range steps {
		m[i] = message(st.key, st.value, st.remove)
	}
	return m
}

// ours is the steps without those that would take away what is somebody
// else's.
func ours(steps []step) []step {
	kept := steps[:0]
	for _, st := range steps {
		if st.remove && !removable(st) {
			continue
		}
		kept = append(kept, st)
	}
	return kept
}

// removable: the object is marked as ours.
func removable(st step) bool {
	if st.key.kind == kindBridge {
		return st.value.foreign == 0 // static, sticky, for a Faild MAC
	}
	return st.value.foreign&notOurProtocol == 0
}

// String is a step as `ip` and `bridge` would say it.
func (st step) String() string {
	verb := "replace "
	if st.remove {
		verb = "del "
	}
	k, v := st.key, st.value
	switch k.kind {
	case kindNexthop, kindGroup:
		return fmt.Sprintf("ip nexthop %sid %d %s", verb, k.id, v)
	case kindBridge:
		return fmt.Sprintf("bridge fdb %s%s %s", verb, macString(k.mac), v)
	case kindNeighbour:
		return fmt.Sprintf("ip neigh %s%s %s", verb, k.addr, v)
	default:
		table := fmt.Sprint(k.table)
		if k.table == unix.RT_TABLE_MAIN {
			table = "main"
		}
		return fmt.Sprintf("ip route %s%s table %s %s", verb, k.addr, table, v)
	}
}

func (v value) String() string {
	text := ""
	switch {
	case v.members != "":
		text = fmt.Sprintf("group of %d", len(v.members)/4)
	case v.gateway.IsValid():
		text = fmt.Sprintf("via %s dev #%d", v.gateway, v.device)
	case v.group != 0:
		text = fmt.Sprintf("nhid %d", v.group)
	case v.mac != [6]byte{}:
		text = fmt.Sprintf("lladdr %s dev #%d", macString(v.mac), v.device)
	default:
		text = fmt.Sprintf("dev #%d", v.device)
	}
	for bit, name := range map[uint32]string{notOurState: "state", notOurProtocol: "protocol", notOurShape: "kind"} {
		if v.foreign&bit != 0 {
			text += " (another " + name + ")"
		}
	}
	return text
}
