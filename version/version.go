// Package version says which fairlead this is.
package version

import "runtime/debug"

// Set by the linker in releases: -X github.com/fairlead/fairlead/version.release=v1.2.3.
var release string

// String is the release, or for a build from a work tree the commit, or
// "devel" where Go recorded neither.
func String() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	commit, dirty := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "-modified"
			}
		}
	}
	if commit == "" {
		return "devel"
	}
	return commit[:min(12, len(commit))] + dirty
}
