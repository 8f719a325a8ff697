// Package kept is what daemons keep on disk, for whoever looks while they run or do not: it
// locks nothing and links no daemon.
package kept

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/sealed"
)

// DefaultStateDir holds a folder a daemon.
const DefaultStateDir = "/var/lib/fairlead"

// DesiredName is the file of the desired state that a daemon goes by.
const DesiredName = "desired.json"

// OwnSocket is where a controller whose api is for other machines answers this
// machine's root, too. stateDir may be empty: the default.
func OwnSocket(stateDir, name string) string {
	return filepath.Join(cmp.Or(stateDir, DefaultStateDir), name, "api.sock")
}

// Read is the content of a file that the daemon called name keeps under base; nil for no
// file.
func Read(base, name, file string) ([]byte, error) {
	path := filepath.Join(base, name, file)
	data, _, err := Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

// Open is a sealed file's content, or an older one's that is not; nil for no file.
func Open(path string) (data []byte, isSealed bool, err error) {
	file, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return sealed.Open(file)
}

// Desired is the newest text that daemons keep in folders under base, and its version; 0:
// there is none that may be read.
func Desired(base string) (newest []byte, version uint64) {
	folders, _ := os.ReadDir(base) // none: nothing
	for _, f := range folders {
		data, err := Read(base, f.Name(), DesiredName)
		var t struct {
			Is struct {
				Version uint64 `json:"version"`
			} `json:"desired"`
			Text string `json:"text"`
		}
		if err == nil && data != nil && json.Unmarshal(data, &t) == nil && t.Is.Version > version {
			newest, version = []byte(t.Text), t.Is.Version
		}
	}
	return newest, version
}
