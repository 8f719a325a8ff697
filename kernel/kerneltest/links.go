package kerneltest

import (
	"path/filepath"

	"github.com/cilium/ebpf/link"

	"github.com/fairlead/fairlead/kernel"
)

// Attached are the ids of the links pinned in a daemon's folder by name, those that
// are attached.
func Attached(pinDir string) map[string]link.ID {
	ids := map[string]link.ID{}
	_ = kernel.Each(filepath.Join(pinDir, kernel.DirLinks), func(name, path string) error {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return err
		}
		defer l.Close()
		if at, err := kernel.Where(l); err != nil || at == 0 {
			return err
		}
		info, err := l.Info()
		ids[name] = info.ID
		return err
	})
	return ids
}
