package chash

import "math/bits"

// trackReweighed also tracks the rows of servers whose weight is changing
// (New, Held and Horizon differ while it is in both) that they would lose if
// only some of the changes under way came about: while a's old weight is in
// force b may get its new one, or be added from the horizon. A row may go
// untracked only if its server wins it with the least of its weights against
// all others with the greatest of theirs.
//
// That would be a set for each such server. But it is enough that the server
// wins in several sets in which it has its least weight, if each of the
// others has its greatest in one of them: with the servers numbered in
// binary, a set for each bit and value of it gives all who have that bit so
// their least weight, and 2·log2 of their number is enough.
func trackReweighed(s Spec, members []Member, t *Table) error {
	number := map[int]int{} // of those whose weight changes, by slot
	for _, m := range members {
		if least := min(m.New, m.Held); least > 0 && least < max(m.New, m.Held, m.Horizon) {
			number[m.Number] = len(number)
		}
	}
	if len(number) == 0 {
		return nil
	}
	set := make([]Member, len(members))
	for bit := range max(1, bits.Len(uint(len(number)-1))) {
		for value := range min(2, len(number)) {
			isLeast := func(slot int) bool {
				i, changes := number[slot]
				return changes && i>>bit&1 == value
			}
			for i, m := range members {
				w := max(m.New, m.Held, m.Horizon)
				if isLeast(m.Number) {
					w = min(m.New, m.Held)
				}
				set[i] = Member{Name: m.Name, Number: m.Number, New: w, Held: w, Horizon: w}
			}
			other, err := Compile(s, set)
			if err != nil {
				return err
			}
			for row, e := range t.Entries {
				if slot := EntrySlot(e); !EntryTrack(e) && isLeast(slot) && EntrySlot(other.Entries[row]) != slot {
					t.Entries[row] |= 1 << 31
				}
			}
		}
	}
	return nil
}
