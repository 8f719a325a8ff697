package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

// printRouters prints what routers have in force, and every next hop.
func printRouters(w io.Writer, answers []answer) {
	var all []answer
	for _, a := range answers {
		if a.err == nil && a.status.Router != nil {
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, "\nROUTER\tSELECTOR\tFORWARDED ROUTES\tLEFT TO THE KERNEL\tGROUPS\tSELECTED\tGONE\tHASHED\tSINGLE")
	for _, a := range all {
		r := a.status.Router
		forwarded, left := routeCounts(r)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", a.name, selectorWord(r.Selector), forwarded, left, r.Groups,
			r.Selected, r.Gone, r.Hashed, r.Single)
	}
	if !sameSelectors(all) {
		fmt.Fprintln(w, "Selectors DIFFER: paths are chosen only where all routers and hosts have the same; bring fabric.yaml to all and restart their daemons, which stops no packet.")
	}
	fmt.Fprintln(w, "\nROUTER\tPORT\tINTERFACE\tGATEWAY\tVLAN\tMAC\tUSABLE\tSELECTED\tGONE\tHASHED\tSINGLE\tBYTES")
	for _, a := range all {
		for _, h := range a.status.Router.Hops {
			usable := "yes"
			if !h.Usable {
				usable = "no: " + h.Why
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", a.name, orNone(h.Port), h.Interface, h.Gateway, tag(h.Vlan), orDash(h.Mac),
				usable, h.Selected, h.Gone, h.Hashed, h.Single, h.Bytes)
		}
	}
}

// routeCounts are numbers of IPv4 and IPv6 routes: those that the program
// forwards by, and the others.
func routeCounts(r *fairleadv1.Router) (forwarded, left string) {
	var four, six, left4, left6 uint32
	for _, one := range r.Routes {
		if one.Kind == "forward" {
			four, six = one.Ipv4, one.Ipv6
		} else {
			left4 += one.Ipv4
			left6 += one.Ipv6
		}
	}
	return fmt.Sprintf("%d IPv4, %d IPv6", four, six), fmt.Sprintf("%d IPv4, %d IPv6", left4, left6)
}

func selectorWord(s *fairleadv1.RouterSelector) string {
	if s == nil {
		return "none (plain)"
	}
	return strings.Join([]string{s.Permutation, fmt.Sprint("radix ", s.Radix), s.Ipv4 + "/" + s.Ipv6}, ", ")
}

// sameSelectors: all routers that read selectors read the same.
func sameSelectors(routers []answer) bool {
	digest := ""
	for _, a := range routers {
		s := a.status.Router.Selector
		if s == nil {
			continue
		}
		if digest != "" && digest != s.Digest {
			return false
		}
		digest = s.Digest
	}
	return true
}

// orNone is a port number.
func orNone(port int32) string {
	if port < 0 {
		return "none"
	}
	return fmt.Sprint(port)
}

func tag(vlan uint32) string {
	if vlan == 0 {
		return "-"
	}
	return fmt.Sprint(vlan)
}
