package config

import (
	"fmt"
	"slices"
	"strings"
)

// Members are the store's for a machine whose file is c and that goes by want: the
// file's first, then what want has beside them, so that a file that names one of three
// loses nothing with it. Want's are left out where they may be another store's: it has
// not one of the file's, or not the file's prefix. differs says what the file lacks;
// "": nothing.
func (c *Config) Members(want *Config) (endpoints []string, differs string) {
	endpoints = c.StoreEndpoints()
	wanted := want.StoreEndpoints()
	known := func(e string) bool { return slices.Contains(endpoints, e) }
	others := slices.DeleteFunc(slices.Clone(wanted), known)
	switch {
	case len(others) == 0 && c.Store.Prefix == want.Store.Prefix:
		return endpoints, ""
	case len(others) == len(wanted) || c.Store.Prefix != want.Store.Prefix:
		return endpoints, fmt.Sprintf("the store is at %s (%s) by %s, and at %s (%s) by what all machines share; this daemon asks the first: put its file right, and restart it",
			strings.Join(endpoints, ", "), c.Store.Prefix, c.File(), strings.Join(wanted, ", "), want.Store.Prefix)
	}
	return append(endpoints, others...), fmt.Sprintf("%s does not name the store's %s: this daemon asks there, too, as what all machines share says so; name all of %s in it, for a start without that", c.File(), strings.Join(others, ", "), strings.Join(wanted, ", "))
}
