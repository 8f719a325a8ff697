package lb

import (
	"errors"
	"fmt"
	"net"
)

// findInterfaces resolves names, refusing what is unknown.
func findInterfaces(names []string) ([]net.Interface, error) {
	if len(names) == 0 {
		return nil, errors.New("no interface to attach to; name them under balancers[].interfaces")
	}
	var list []net.Interface
	for _, n := range names {
		i, err := net.InterfaceByName(n)
		if err != nil {
			return nil, fmt.Errorf("interface %s: there is none of that name; name one that `ip link` shows under balancers[].interfaces", n)
		}
		list = append(list, *i)
	}
	return list, nil
}
