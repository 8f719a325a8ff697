package tracking

import "testing"

func TestTracking(t *testing.T) {
	ct := newTracking(4)
	placed := ct.insert(1, rankPlaced)
	standby := ct.insert(2, rankStandby)
	returning := ct.insert(3, rankReturning)
	moved := ct.insert(4, rankMoved)
	if !ct.full() {
		t.Fatal("four entries of four: not full")
	}
	if v := ct.victim(rankStandby, true); v != placed {
		t.Errorf("victim %d, want the entry that says nothing new", v)
	}
	if v := ct.victim(rankPlaced, true); v != none {
		t.Errorf("victim %d for the lowest rank, want none", v)
	}
	ct.setRank(placed, rankMoved)
	if v := ct.victim(rankReturning, true); v != standby {
		t.Errorf("victim %d, want that of the standby server", v)
	}
	ct.remove(standby)
	ct.insert(5, rankReturning)
	if v := ct.victim(rankReturning, true); v != none {
		t.Errorf("victim %d, want none: one of the same rank never goes", v)
	}
	if v := ct.victim(rankReturning, false); v != returning {
		t.Errorf("victim %d, want the one used longest ago", v)
	}
	ct.touch(returning)
	if v := ct.victim(rankReturning, false); v == returning {
		t.Error("an entry just used goes before an older one")
	}
	ct.remove(moved)
	if ct.used != 3 {
		t.Errorf("%d used, want 3", ct.used)
	}
}
