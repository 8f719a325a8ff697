package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf/link"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/kernel"
)

// loaded: are the programs of the daemon of that name where it put them? wanted are
// its links by their pins' names, and the interface that each is at, if it is at one.
// A daemon that runs puts them back by itself; what is found is what stands in its
// way, or happened while none ran. It says whether there are any.
func (r *report) loaded(name string, wanted map[string]string) bool {
	check, dir := "programs of "+name, filepath.Join(cmp.Or(r.pinDir, kernel.Dir(name)), "links")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		r.ok(check, "not loaded (no "+dir+")")
		return false
	}
	there := map[string]bool{}
	var lost []string
	err := kernel.Each(dir, func(pin, path string) error {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return err
		}
		defer l.Close()
		there[pin] = true
		at, err := kernel.Where(l)
		if err != nil {
			return err
		}
		if at == 0 {
			lost = append(lost, pin+" is detached")
			return nil
		}
		if i := wanted[pin]; i != "" {
			if dev, err := kernel.Device(i); err == nil && (dev == nil || at != uint64(dev.Index)) {
				lost = append(lost, fmt.Sprintf("%s is at interface number %d, which is not %s", pin, at, i))
			}
		}
		return nil
	})
	for _, pin := range slices.Sorted(maps.Keys(wanted)) {
		if err == nil && !there[pin] {
			lost = append(lost, pin+" is not there")
		}
	}
	const remedy = "start the daemon, which puts it back within a second; if it runs, fairlead status says what stands in its way"
	switch {
	case err != nil:
		r.warn(check, err.Error(), "run as root")
	case len(lost) > 0:
		r.fail(check, strings.Join(lost, ", ")+": packets pass it by", remedy)
	default:
		r.ok(check, "attached")
	}
	return true
}

// served: do the server's VIPs stand on this machine? agent says that one is
// loaded, which puts them there.
func (r *report) served(cfg *config.Config, s *config.Server, agent bool) {
	has, err := addresses()
	if err != nil {
		return // and then nothing can be said
	}
	var lacks []string
	served := 0
	for _, v := range cfg.VIPs {
		if !member(v, s.Name) {
			continue
		}
		served++
		if !slices.Contains(has, v.Address.Unmap()) {
			lacks = append(lacks, v.Address.String())
			has = append(has, v.Address.Unmap()) // once
		}
	}
	add := ""
	if len(lacks) > 0 {
		a := netip.MustParseAddr(lacks[0])
		add = fmt.Sprintf("ip address add %s dev lo", netip.PrefixFrom(a, a.BitLen()))
	}
	switch {
	case len(lacks) == 0 && served > 0:
		r.ok("VIPs", "on this machine")
	case len(lacks) == 0:
	case agent:
		r.fail("VIPs", strings.Join(lacks, ", ")+": not on this machine, which refuses their connections", "see to it that fairlead host runs, which puts back what it had put there; or "+add)
	case s.API == config.NoAgent:
		r.fail("VIPs", strings.Join(lacks, ", ")+": not on this machine, which refuses their connections, and has no agent that adds them (api: none)", add)
	default:
		r.ok("VIPs", strings.Join(lacks, ", ")+": not on this machine yet; the agent adds them when it starts")
	}
}
