package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Product, Ctl and Lab are the names of the programs.
const (
	Product = "fairlead"
	Ctl     = "fairleadctl"
	Lab     = "fairlead-lab"
)

// HandedOver is the variable in which fairlead tells fairlead-lab its version
// when it becomes that.
const HandedOver = "FAIRLEAD_HANDED_OVER"

// Experiments are the commands of fairlead-lab and their short help. Users type
// them after fairlead, which hands them over.
var Experiments = map[string]string{
	"demo":  "See Fairlead keep connections alive, on this machine, in a minute",
	"lab":   "A whole deployment on this machine, in network namespaces",
	"bench": "Measure what a packet costs in the programs, next to a floor",
	"sim":   "Repeat the papers' simulations with the program's own schemes, policies and hashes",
}

// Beside is the path of a program of that name in the folder of the running
// one, or else in PATH.
func Beside(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(self), name)
	if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
		return beside, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither in %s, beside this program, nor in PATH: copy it there, as `make build` made both in bin", name, filepath.Dir(self))
	}
	return path, nil
}
