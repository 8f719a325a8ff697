package host

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/tables"
)

// VIPs with `handshake: offload` have their SYNs answered by host_handshake
// (bpf/host/handshake.h). What it goes by is here: the stack's settings, which it must
// not promise more than, and whether the kernel takes what it hands over. Where that is
// not so the stack answers, as without it, and the agent says why.

// offload is what is answered, and what stands in the way.
type offload struct {
	want map[uint32]string // names of the VIPs, by id
	// ending are those that are not answered any more, and until when what was may end.
	ending map[tables.Key]time.Time
	on     bool // host_handshake is to be attached
	last   bpf.Offload
	why    string // why the stack answers; empty: it does not
	// seen are the counts at the last look, and mptcp when a listener was last seen to
	// be MPTCP's.
	seen  map[uint32]bpf.OffloadCount
	mptcp map[uint32]time.Time
	told  map[string]string // what was logged last, of what
}

// mptcpFor is how long a VIP counts as MPTCP's after its last SYN that found such a
// listener: where some listeners of a port are and some are not, it stays so.
const mptcpFor = time.Minute

var classicHandshake = classic{"fairlead_host_handshake", netlink.HANDLE_MIN_INGRESS}

// linkHandshake is the first part of the names of host_handshake's links.
const linkHandshake = "handshake"

// setUpOffload makes the key of the SYN cookies, once in the pins' life.
func (a *Agent) setUpOffload() error {
	a.offload = offload{want: map[uint32]string{}, ending: map[tables.Key]time.Time{}, seen: map[uint32]bpf.OffloadCount{},
		mptcp: map[uint32]time.Time{}, told: map[string]string{}}
	if err := a.set.HostOffload.Lookup(uint32(0), &a.offload.last); err != nil {
		return fmt.Errorf("map host_offload: %w", err)
	}
	if a.offload.last.Key != [2]uint64{} {
		return nil
	}
	var key [16]byte
	_, _ = rand.Read(key[:]) // never fails
	for i := range a.offload.last.Key {
		a.offload.last.Key[i] = binary.LittleEndian.Uint64(key[8*i:])
	}
	return a.putOffload()
}

func (a *Agent) putOffload() error {
	if err := a.set.HostOffload.Put(uint32(0), a.offload.last); err != nil {
		return fmt.Errorf("map host_offload: %w", err)
	}
	return nil
}

// followOffload makes want those whose SYNs are answered from here on. Those that are not
// any more end what they have begun.
func (a *Agent) followOffload(want map[uint32]string) error {
	o := &a.offload
	o.want = want
	o.on = false
	ending := map[tables.Key]time.Time{}
	for key, v := range a.table.Entries {
		if v.Flags&uint16(bpf.HostVIPOffload) == 0 {
			continue
		}
		o.on = true
		if _, ok := want[v.Id]; ok {
			continue
		}
		if ending[key] = o.ending[key]; ending[key].IsZero() {
			ending[key] = time.Now().Add(bpf.OffloadMs * time.Millisecond)
		}
	}
	o.ending = ending
	return errors.Join(a.countOffload(), a.tendOffload())
}

// offloadEnded says that nothing that was begun at key can end any more.
func (o *offload) ended(key tables.Key, now time.Time) bool {
	until, ok := o.ending[key]
	return ok && now.After(until)
}

// countOffload makes the counts of the VIPs in want, without which none of their SYNs is
// answered, and drops those of others.
func (a *Agent) countOffload() error {
	there := map[uint32]bool{}
	var id uint32
	var cpus []bpf.OffloadCount
	it := a.set.HostOffloaded.Iterate()
	for it.Next(&id, &cpus) {
		there[id] = true
	}
	errs := []error{it.Err()}
	for id := range there {
		if _, ok := a.offload.want[id]; !ok {
			errs = append(errs, a.set.HostOffloaded.Delete(id))
			delete(a.offload.seen, id)
			delete(a.offload.mptcp, id)
		}
	}
	for id := range a.offload.want {
		if !there[id] {
			errs = append(errs, a.set.HostOffloaded.Put(id, make([]bpf.OffloadCount, ebpf.MustPossibleCPU())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("map host_offloaded: %w", err)
	}
	return nil
}

// tendOffload has the program where it belongs, and it go by the stack's settings of
// today. a.mu is held.
func (a *Agent) tendOffload() error {
	o := &a.offload
	if !o.on {
		return a.endOffload()
	}
	next, why := o.last, kernelOffloads()
	err := kernel.InNamespace(a.ns, func() error {
		if why == "" {
			next, why = stackOffloads(a.o.Interfaces[0])
			next.Key = o.last.Key
		}
		if why == "" {
			why = a.loopbackForwards()
		}
		return a.attachHandshakes()
	})
	if why == "" && err != nil {
		why = "a program could not be attached: " + err.Error()
	}
	if o.why = why; why != "" {
		next.Flags = 0
	}
	if next != o.last {
		o.last = next
		err = errors.Join(err, a.putOffload())
	}
	err = errors.Join(err, a.lookOffloaded())
	a.tellOffload()
	return err
}

// endOffload takes it all away again.
func (a *Agent) endOffload() error {
	var errs []error
	for i := range a.devices {
		errs = append(errs, a.folder.Drop(linkName(linkHandshake, a.devices[i].Name)))
	}
	if a.offload.last.Flags != 0 {
		a.offload.last.Flags = 0
		errs = append(errs, a.putOffload())
	}
	a.offload.why = ""
	return errors.Join(append(errs, kernel.InNamespace(a.ns, func() error {
		return errors.Join(detachClassic(a.netlink, classicHandshake, nil), undoForwarding(a.notes))
	}))...)
}

// attachHandshakes attaches host_handshake behind what other programs do on the way in:
// what they drop is not answered. A device that host_in is not on is left to a later look.
func (a *Agent) attachHandshakes() error {
	var errs []error
	for _, d := range a.devices {
		if d.Mode == kernel.Off {
			continue
		}
		_, err := a.attachTC(linkName(linkHandshake, d.Name), classicHandshake, &net.Interface{Index: d.Index, Name: d.Name}, "host_handshake",
			ebpf.AttachTCXIngress, link.Tail())
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// kernelOffloads is why this kernel cannot; empty: it can.
var kernelOffloads = sync.OnceValue(func() string {
	const assign = "bpf_sk_assign_tcp_reqsk"
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return "the kernel's types cannot be read: " + err.Error()
	}
	var f *btf.Func
	if spec.TypeByName(assign, &f) != nil {
		return "this kernel has no " + assign + ": use Linux 6.8 or later with CONFIG_SYN_COOKIES"
	}
	return ""
})

// OffloadProblem is why handshakes cannot be offloaded on this machine, in the calling
// thread's network namespace; empty: they can.
func OffloadProblem() string {
	why := kernelOffloads()
	if why == "" {
		_, why = stackOffloads("lo")
	}
	return why
}

// stackOffloads is what the stack in the calling thread's network namespace would agree
// to, and how far what it sends by the device goes; or why it takes no handshake that
// somebody else has begun.
func stackOffloads(device string) (o bpf.Offload, why string) {
	is := func(name string) (uint64, bool) {
		b, err := os.ReadFile("/proc/sys/net/" + name)
		f := strings.Fields(string(b))
		if err != nil || len(f) == 0 {
			return 0, false
		}
		n, err := strconv.ParseUint(f[len(f)-1], 10, 64) // of tcp_rmem, the largest
		return n, err == nil
	}
	for _, needed := range []struct{ name, on string }{{"ipv4/tcp_syncookies", "1"}, {"ipv4/tcp_timestamps", "1 (or 2)"}} {
		if n, ok := is(needed.name); ok && n == 0 {
			name := "net." + strings.ReplaceAll(needed.name, "/", ".")
			return o, fmt.Sprintf("%s is 0, so the kernel takes no handshake that was answered for it: sysctl -w %s=%s", name, name, needed.on)
		}
	}
	on := bpf.OffloadOn
	for name, flag := range map[string]bpf.OffloadFlags{"ipv4/tcp_sack": bpf.OffloadSack, "ipv4/tcp_window_scaling": bpf.OffloadWscale, "ipv4/tcp_ecn": bpf.OffloadEcn} {
		if n, ok := is(name); ok && n != 0 {
			on |= flag
		}
	}
	o.Flags, o.Ttl, o.HopLimit = uint32(on), 64, 64
	if n, ok := is("ipv4/ip_default_ttl"); ok {
		o.Ttl = uint8(n)
	}
	if n, ok := is("ipv6/conf/" + device + "/hop_limit"); ok {
		o.HopLimit = uint8(n)
	}
	// As the stack has it (tcp_select_initial_window).
	space, _ := is("ipv4/tcp_rmem")
	if most, ok := is("core/rmem_max"); ok {
		space = max(space, most)
	}
	o.Wscale = uint8(min(max(bits.Len64(space)-16, 0), 14))
	return o, ""
}

// loopbackForwards lets programs ask the kernel for the ways of what this machine sends
// (handshake_syn.h), and says what keeps them from it. Nothing else comes of it: what
// comes in by the loopback was sent by this machine, to itself.
func (a *Agent) loopbackForwards() string {
	for family, file := range forwardingFiles {
		b, err := os.ReadFile(file)
		if err != nil || len(b) > 0 && b[0] != '0' {
			continue // no IPv6, or it is so
		}
		err = a.notes.write(note{Kind: noteForwarding, Index: family}, 1)
		if err == nil {
			err = os.WriteFile(file, []byte("1"), 0)
		}
		if err != nil {
			return fmt.Sprintf("%v: set it to 1", err)
		}
	}
	return ""
}

// forwardingFiles are where the loopback is told to forward, by note.
var forwardingFiles = map[uint32]string{4: "/proc/sys/net/ipv4/conf/lo/forwarding", 6: "/proc/sys/net/ipv6/conf/lo/forwarding"}

// undoForwarding undoes loopbackForwards, in the agent's network namespace.
func undoForwarding(n notes) error {
	noted, err := n.of(noteForwarding)
	errs := []error{err}
	for _, k := range noted {
		if err := os.WriteFile(forwardingFiles[k.Index], []byte("0"), 0); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, n.remove(k))
	}
	return errors.Join(errs...)
}

// lookOffloaded looks whose listeners are MPTCP's.
func (a *Agent) lookOffloaded() error {
	o, now := &a.offload, time.Now()
	for id := range o.want {
		n, err := a.offloadCount(id)
		if err != nil {
			return err
		}
		if before, ok := o.seen[id]; ok && n.Mptcp != before.Mptcp {
			o.mptcp[id] = now
		} else if n.Answered != before.Answered && now.Sub(o.mptcp[id]) > mptcpFor {
			delete(o.mptcp, id)
		}
		o.seen[id] = n
	}
	return nil
}

// offloadCount is a VIP's, over all CPUs.
func (a *Agent) offloadCount(id uint32) (sum bpf.OffloadCount, err error) {
	var cpus []bpf.OffloadCount
	if err := a.set.HostOffloaded.Lookup(id, &cpus); err != nil {
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return sum, nil
		}
		return sum, fmt.Errorf("map host_offloaded: %w", err)
	}
	for _, n := range cpus {
		sum.Answered += n.Answered
		sum.Opened += n.Opened
		sum.Stack += n.Stack
		sum.Mptcp += n.Mptcp
	}
	return sum, nil
}

// problems are why VIPs' handshakes are the stack's though they should not be, by what
// it is that has the problem.
func (o *offload) problems() map[string]string {
	if o.why != "" && len(o.want) > 0 {
		return map[string]string{"": "handshakes are not offloaded: " + o.why}
	}
	found := map[string]string{}
	for id, name := range o.want {
		if _, ok := o.mptcp[id]; ok {
			found[name] = fmt.Sprintf("vip %s: its listener is MPTCP's, whose handshakes cannot be offloaded, so that the stack answers: "+
				"have the server listen on plain TCP (Go: GODEBUG=multipathtcp=0, or net.ListenConfig.SetMultipathTCP(false)), or write handshake: stack", name)
		}
	}
	return found
}

// tellOffload logs what has become wrong, or right, since it last did, each by itself.
func (a *Agent) tellOffload() {
	o := &a.offload
	now := o.problems()
	for what, why := range now {
		if o.told[what] != why {
			a.log.Warn(why)
		}
	}
	for what := range o.told {
		if _, ok := now[what]; !ok && o.on {
			a.log.Info("handshakes are offloaded again", "vip", what)
		}
	}
	o.told = now
}

// warnOffload is what status says of it.
func (o *offload) warnings() []string {
	var list []string
	for _, why := range o.problems() {
		list = append(list, why)
	}
	slices.Sort(list)
	return list
}
