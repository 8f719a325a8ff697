package daemon

import "time"

// soonRest is how long what is to be written in the background waits for what else comes:
// a change is several versions, one right after the other, and to write one would only
// take the processor from the next. Tests have it shorter.
var soonRest = 3 * time.Second

// soonAtMost is how long a file waits where there is always something else to be written,
// about: what is on disk when the power fails is not older than that.
var soonAtMost = 30 * time.Second

// later is what is to be written to a file in the background.
type later struct {
	name   string
	encode func() []byte
	said   uint64 // see State.say
	at     time.Time
	since  time.Time // when what of its file is not written yet was said first
}

// due is when it is to be written at the latest.
func (l later) due() time.Time {
	rested, most := l.at.Add(soonRest), l.since.Add(soonAtMost)
	if most.Before(rested) {
		return most
	}
	return rested
}

// KeepSoon is Keep of what encode gives, in the background: encode takes long, or the
// disk with what it gives. nil: there shall be no such file. Files are written in the
// order in which they were said, each with what was said of it last, here or to Keep,
// Write and Remove, after a rest of soonRest, which Close cuts short, and
// soonAtMost where changes never let it rest. Nobody may change what
// encode reads.
func (s *State) KeepSoon(name string, encode func() []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	l := later{name: name, encode: encode, at: now, since: now}
	for _, before := range s.later {
		if before.name == name && s.stands(before) {
			l.since = before.since
		}
	}
	l.said = s.sayLocked(name)
	s.later = append(s.later, l)
	if len(s.later) == 1 {
		s.soon.Go(s.writeLater)
	}
}

// say notes that something else is to be in a file than before, and returns how often
// that was so.
func (s *State) say(name string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sayLocked(name)
}

// sayLocked is say; the caller holds mu.
func (s *State) sayLocked(name string) uint64 {
	if s.said == nil {
		s.said = map[string]uint64{}
	}
	s.said[name]++
	return s.said[name]
}

// writeLater writes until there is nothing more. The first of later is the one that is
// being written.
func (s *State) writeLater() {
	for {
		s.mu.Lock()
		next, due := s.later[0], s.later[0].due()
		for _, l := range s.later[1:] { // those before one that has waited too long go with it
			if l.due().Before(due) {
				due = l.due()
			}
		}
		s.mu.Unlock()
		select {
		case <-time.After(time.Until(due)):
		case <-s.closing:
		}
		s.mu.Lock()
		stands := s.stands(next)
		s.later[0].since = time.Now() // what is said while it is written has all its time
		s.mu.Unlock()
		if stands {
			s.writeNow(next, next.encode())
		}
		s.mu.Lock()
		s.later = s.later[1:]
		over := len(s.later) == 0
		s.mu.Unlock()
		if over {
			return
		}
	}
}

// stands: nothing else was said of its file since. The caller holds mu.
func (s *State) stands(l later) bool { return s.said[l.name] == l.said }

func (s *State) writeNow(l later, data []byte) {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.Lock()
	stands := s.stands(l)
	s.mu.Unlock()
	var err error
	switch {
	case !stands:
		return
	case data == nil:
		err = s.remove(l.name)
	default:
		err = s.keep(l.name, data)
	}
	if err != nil {
		s.log.Error("not on disk yet; trying on", "file", l.name, "error", err)
	}
}
