package dataplane

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/fairlead/fairlead/bpffs"
)

// Names of the programs in bpf/lb.
const (
	progLB        = "lb"
	progLineWrite = "line_write"
	progClock     = "clock"
	progHealth    = "health"
	progFlowWrite = "flow_write"
	progFlowSweep = "flow_sweep"
)

// Interface is where the balancer is attached.
type Interface struct {
	Name string
	Mode string // native, generic
}

// attachments are the links of one balancer, one of each kind an interface.
type attachments struct {
	pinDir string
	log    *slog.Logger
	links  map[string]link.Link // by pin name
	undo   []func()
}

// attachAll brings programs into force on the interfaces: a pinned link has
// its program replaced, which loses no packet; where there is none the
// program is attached. If anything fails, what was done is undone. Links of
// other interfaces stay; see dropOthers.
func attachAll(pinDir string, ifaces []net.Interface, programs, before map[string]*ebpf.Program, log *slog.Logger) (*attachments, error) {
	a := &attachments{pinDir: pinDir, log: log, links: map[string]link.Link{}}
	for _, i := range ifaces {
		for _, k := range []struct {
			kind, program string
			attach        func(net.Interface, *ebpf.Program) (link.Link, error)
		}{{"xdp", progLB, a.attachXDP}, {"tcx", progHealth, attachTCX}} {
			if err := a.one(k.kind, i, programs[k.program], before[k.program], k.attach); err != nil {
				for n := len(a.undo) - 1; n >= 0; n-- {
					a.undo[n]()
				}
				a.close()
				return nil, err
			}
		}
	}
	return a, nil
}

func (a *attachments) one(kind string, i net.Interface, program, before *ebpf.Program, attach func(net.Interface, *ebpf.Program) (link.Link, error)) error {
	name := linkPin(kind, i.Name)
	path := filepath.Join(a.pinDir, dirLinks, name)
	// A process that was killed between pinning and renaming leaves this.
	_ = os.Rename(path+bpffs.PinNew, path)
	l, err := link.LoadPinnedLink(path, nil)
	switch {
	case err == nil && linkIfindex(l) == i.Index:
		if err := l.Update(program); err != nil {
			l.Close()
			return fmt.Errorf("interface %s: replace the %s program: %w", i.Name, kind, err)
		}
		a.links[name] = l
		if before != nil {
			a.undo = append(a.undo, func() { _ = l.Update(before) })
		}
		return nil
	case err == nil:
		// The interface that this link was for is gone, another has its name.
		l.Close()
		if err := os.Remove(path); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("interface %s: open the pinned link: %w", i.Name, err)
	}
	l, err = attach(i, program)
	if err != nil {
		return fmt.Errorf("interface %s: %w", i.Name, err)
	}
	if err := bpffs.Replace(l, path); err != nil {
		l.Close()
		return err
	}
	a.links[name] = l
	a.undo = append(a.undo, func() { _ = l.Detach(); _ = os.Remove(path) })
	return nil
}

func (a *attachments) attachXDP(i net.Interface, p *ebpf.Program) (link.Link, error) {
	return bpffs.AttachXDP(p, i.Index, i.Name, a.log)
}

func attachTCX(i net.Interface, p *ebpf.Program) (link.Link, error) {
	l, err := link.AttachTCX(link.TCXOptions{Program: p, Interface: i.Index, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
	if err != nil {
		return nil, fmt.Errorf("attach to tc egress: %w", err)
	}
	return l, nil
}

func linkIfindex(l link.Link) int {
	info, err := l.Info()
	if err != nil {
		return 0
	}
	if x := info.XDP(); x != nil {
		return int(x.Ifindex)
	}
	if t := info.TCX(); t != nil {
		return int(t.Ifindex)
	}
	return 0
}

// dropOthers detaches from interfaces that are no longer configured.
func (a *attachments) dropOthers() error {
	return bpffs.Each(filepath.Join(a.pinDir, dirLinks), func(name, path string) error {
		if a.links[name] != nil || strings.HasSuffix(name, bpffs.PinNew) {
			return nil
		}
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return err
		}
		defer l.Close()
		a.log.Info("detached from an interface that is no longer configured", "link", name)
		_ = l.Detach() // fails when the interface is gone, which is as good
		return os.Remove(path)
	})
}

// close lets go of the links; pinned ones stay attached.
func (a *attachments) close() {
	for _, l := range a.links {
		l.Close()
	}
}
