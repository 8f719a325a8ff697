package host

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netns"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/health"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/nexthop"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/vip"
)

// What the agent does for VIPs of schemes beamer and faild, whose servers know
// who owns a connection.

// openOwn opens what belongs to the calling thread's network namespace.
func (a *Agent) openOwn() (err error) {
	wrap := func(err error) error { return fmt.Errorf("host agent: %w", err) }
	if a.ns, err = netns.Get(); err != nil {
		return wrap(err)
	}
	if a.hops, err = nexthop.New(a.log); err != nil {
		return wrap(err)
	}
	if a.diag, err = openDiag(); err != nil {
		return wrap(err)
	}
	if a.frames, err = kernel.OpenFrames(copyFrames); err != nil {
		return wrap(err)
	}
	if a.joins, err = openJoins(); err != nil {
		return wrap(err)
	}
	a.state = newStates(localProber{a.ns, a.diag}, func(t health.Target, r health.Report) {
		a.log.Info("this server's state", "vip", t.VIPName, "state", r.State.String(), "detail", r.Detail)
		a.listeners.changed()
	})
	if a.listeners, err = newListeners(a.log, func(vip uint32, why string) { a.state.checks.Ended(a.o.Server, vip, why) }); err != nil {
		return wrap(err)
	}
	return nil
}

// closeOwn closes what openOwn opened, also where that stopped half-way.
func (a *Agent) closeOwn() {
	if a.state != nil {
		a.state.close() // its checks use the rest
	}
	a.listeners.close()
	if a.hops != nil {
		a.hops.Close()
	}
	if a.diag != nil {
		a.diag.close()
	}
	a.frames.Close()
	a.joins.close()
	if a.ns.IsOpen() {
		a.ns.Close()
	}
}

// prepare comes before packets go by the new table: what it needs is added,
// and nothing taken away that the old one may need.
func (a *Agent) prepare(p *tables.HostPlan) error {
	a.state.watch(p.Chains, a.o.Server)
	a.listeners.follow(p.Services())
	if err := a.writeSources(tables.WithSources(a.sources, p.Sources)); err != nil {
		return err
	}
	if err := a.putPeers(p); err != nil {
		return err
	}
	if p.Faild {
		return a.accept()
	}
	return nil
}

// settle comes after it: what the old table alone needed goes.
func (a *Agent) settle(p *tables.HostPlan, before *tables.HostTable) error {
	a.chains, a.open = p.Chains, p.Open
	errs := []error{a.forgetGenerations(before), a.writeSources(tables.WithoutSources(a.sources, p.Sources)), a.dropPeers(p)}
	if !p.Faild {
		errs = append(errs, a.refuse())
	}
	errs = append(errs, a.followOffload(p.Offloads()))
	a.joins.follow(p.Chains)
	a.syncJoins()
	return errors.Join(errs...)
}

// forgetGenerations clears what packets taught of VIPs whose generation the
// agent now knows to be another.
func (a *Agent) forgetGenerations(before *tables.HostTable) error {
	for key, v := range a.table.Entries {
		old, had := before.Entries[key]
		if !vip.SchemeOf(v.Scheme).Hops || had && old.Generation == v.Generation {
			continue
		}
		var own bpf.HostOwn
		err := a.set.HostOwn.Lookup(v.Id, &own)
		if err == nil {
			// When a stale table was last met is told all the same.
			err = a.set.HostOwn.Put(v.Id, bpf.HostOwn{StaleMs: own.StaleMs})
		}
		if err != nil {
			return fmt.Errorf("map host_own: %w", err)
		}
	}
	return nil
}

// keep puts right what others changed; a.mu is held.
func (a *Agent) keep() error {
	if len(a.joins.want) > 0 {
		a.syncJoins()
	}
	if a.offload.on {
		if err := a.tendOffload(); err != nil {
			return err
		}
	}
	for _, v := range a.chains {
		if v.Scheme.Switched {
			return a.openCards()
		}
	}
	return nil
}

// syncJoins brings MPTCP's endpoints in line; a.mu is held.
func (a *Agent) syncJoins() {
	err := a.joins.sync(a.ns, a.notes)
	switch why := a.joins.why; {
	case why == a.joins.told:
		return
	case err != nil:
		a.log.Error(why)
	default:
		a.log.Info("MPTCP: joins are taken to their connections' server again")
	}
	a.joins.told = a.joins.why
}

// resettle writes what the servers' states have become into the table
// (FL_HOST_VIP_UNSETTLED), and that no handshake is to end any more which was begun
// when it was offloaded (FL_HOST_VIP_OFFLOAD).
func (a *Agent) resettle() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	flags, now := map[uint32]uint16{}, time.Now()
	for _, v := range a.chains {
		flags[v.ID] = a.flags(v, now)
	}
	next := a.table.Clone()
	changed := false
	for key, v := range next.Entries {
		if a.offload.ended(key, now) {
			v.Flags &^= uint16(bpf.HostVIPOffload)
			next.Entries[key] = v
			changed = true
			continue
		}
		f, ok := flags[v.Id]
		if f |= v.Flags &^ uint16(bpf.HostVIPUnsettled); ok && v.Scheme != 0 && v.Flags != f {
			v.Flags = f
			next.Entries[key] = v
			changed = true
		}
	}
	if !changed {
		return nil
	}
	if err := kernel.WaitForReaders(); err != nil {
		return err
	}
	if err := writeTable(a.set.HostVips, a.control, next); err != nil {
		return err
	}
	a.flip()
	a.table = next
	if len(a.offload.ending) > 0 {
		return a.followOffload(a.offload.want)
	}
	return nil
}

func (a *Agent) flags(v *tables.ChainVIP, now time.Time) uint16 {
	if a.state.unsettled(v, now) {
		return uint16(bpf.HostVIPUnsettled)
	}
	return 0
}

// eachFlow calls f for every flow of UDP that is known.
func (a *Agent) eachFlow(f func(vip uint32, client netip.AddrPort, port uint16)) error {
	now := a.SharedNow()
	a.mu.Lock()
	known := map[uint32]uint32{}
	for _, v := range a.table.Entries {
		known[v.Id] = v.ChainMs
	}
	a.mu.Unlock()
	// In batches: they go by the map's own places, so that flows that come and
	// go meanwhile do not send them back to the beginning.
	keys, seen := make([]bpf.Tuple, flowBatch), make([]uint32, flowBatch)
	var at ebpf.MapBatchCursor
	for {
		n, err := a.set.HostFlows.BatchLookup(&at, keys, seen, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		for i, key := range keys[:n] {
			if int32(now-seen[i]) <= int32(known[key.VipId]) {
				f(key.VipId, netip.AddrPortFrom(tables.AddrOf(key.Addr), bits.ReverseBytes16(key.Sport)), bits.ReverseBytes16(key.Dport))
			}
		}
		if err != nil { // that was the end
			return nil
		}
	}
}

// flowBatch is how many flows are read at a time. More than any one place of
// the map's hash has: the kernel refuses to give part of one.
const flowBatch = 4096
