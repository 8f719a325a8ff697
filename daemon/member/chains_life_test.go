package member_test

import (
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/daemon/member/membertest"
	"github.com/fairlead/fairlead/tables/effective"
)

// rows is the chains of one VIP, which notes what it is told.
type rows struct {
	vips  []uint32
	rows  []effective.BucketRow
	told  chan []effective.BucketRow
	at    sync.Mutex
	after time.Time // counts end chains
}

func (r *rows) VIPs() []uint32 { return r.vips }

func (r *rows) Rows(_ uint32, first, max int) (page []effective.BucketRow, generation uint32, size, next int) {
	return r.rows, 7, 1000, 0
}

func (r *rows) Learn(_ uint32, rows []effective.BucketRow) { r.told <- rows }

func (r *rows) EndAfter(t time.Time) {
	r.at.Lock()
	defer r.at.Unlock()
	r.after = t
}

func (r *rows) bound() time.Time {
	r.at.Lock()
	defer r.at.Unlock()
	return r.after
}

// startChains starts a balancer with bucket tables.
func startChains(d *membertest.Deployment, name string, c member.Chains) {
	d.T.Helper()
	d.StartRole(membertest.Role(config.RoleBalancer, func(*member.Member) (member.Opened, error) {
		o := d.Plane(name).Opened()
		o.Chains = c
		return o, nil
	}), name)
}

// GetChains over the API; agents have no tables.
func TestGetChains(t *testing.T) {
	t.Parallel()
	d := membertest.New(t)
	startChains(d, "lb1", &rows{vips: []uint32{1}, rows: []effective.BucketRow{{Bucket: 4, Row: buckets.Row{Current: 1, Previous: buckets.NoPrevious, Since: 9}}}, told: make(chan []effective.BucketRow, 100)})
	told := make(chan []effective.BucketRow, 100)
	startChains(d, "lb2", &rows{vips: []uint32{1}, told: told})
	if rows := <-told; len(rows) != 1 || rows[0].Bucket != 4 || rows[0].Current != 1 || rows[0].Previous != buckets.NoPrevious || rows[0].Since != 9 {
		t.Errorf("lb2 learned %v", rows)
	}
	d.Start(config.RoleHost, "s1")
	if _, err := d.Client("s1").GetChains(t.Context(), connect.NewRequest(&fairleadv1.GetChainsRequest{})); connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("of an agent: %v", err)
	}
}

// Reports end chains once every balancer has the version in force, and not
// while one of them may go by another.
func TestTogether(t *testing.T) {
	t.Parallel()
	d := membertest.New(t)
	p := new(rows)
	began := time.Now()
	startChains(d, "lb1", p)
	d.Eventually("lb2, which does not answer, holds chains", func() bool { return p.bound().Equal(member.Never) })
	d.Start(config.RoleBalancer, "lb2")
	d.Eventually("both have it", func() bool { return p.bound().Before(member.Never) })
	if at := p.bound(); at.Before(began.Add(member.InFlight)) || at.After(time.Now().Add(member.InFlight)) {
		t.Errorf("counts end chains from %v after the start on", at.Sub(began))
	}
	// A change puts both off, until lb2 has said that it has it.
	changed := time.Now()
	if err := d.Drain("s1", "s1", "s2"); err != nil {
		t.Fatal(err)
	}
	d.Eventually("both have the next", func() bool { at := p.bound(); return at.After(changed.Add(member.InFlight)) && at.Before(member.Never) })
	d.Stops["lb2"]()
	d.Eventually("lb2 is away", func() bool { return p.bound().Equal(member.Never) })
}
