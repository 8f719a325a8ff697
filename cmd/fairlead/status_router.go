package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
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
	fmt.Fprintln(w, "\nROUTER\tSELECTOR\tFORWARDED ROUTES\tOWN ADDRESSES\tLEFT TO THE KERNEL\tGROUPS\tSELECTED\tGONE\tHASHED\tSINGLE")
	for _, a := range all {
		r := a.status.Router
		forwarded, own, left := routeCounts(r)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", a.name, selectorWord(r.Selector), forwarded, own, left, r.Groups,
			r.Selected, r.Gone, r.Hashed, r.Single)
	}
	if !sameSelectors(all) {
		fmt.Fprintln(w, "Selectors DIFFER: paths are chosen only where all routers and hosts have the same; bring fabric.yaml and one build to all and restart their daemons, which stops no packet.")
	}
	fmt.Fprintln(w, "\nROUTER\tPORT\tINTERFACE\tGATEWAY\tVLAN\tMAC\tUSABLE\tSELECTED\tGONE\tHASHED\tSINGLE\tBYTES")
	var why []string
	for _, a := range all {
		for _, h := range a.status.Router.Hops {
			usable := "yes"
			if !h.Usable {
				usable = "no"
				why = append(why, fmt.Sprintf("%s does not use next hop %s dev %s: %s", a.name, h.Gateway, h.Interface, h.Why))
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", a.name, portText(h.Port), h.Interface, h.Gateway, tag(h.Vlan), cmp.Or(h.Mac, "-"),
				usable, h.Selected, h.Gone, h.Hashed, h.Single, h.Bytes)
		}
	}
	for _, line := range why {
		fmt.Fprintln(w, line)
	}
	printLeft(w, all)
}

// printLeft prints what each router left to its kernel, by reason, without
// zeros.
func printLeft(w io.Writer, routers []answer) {
	head := "\nROUTER\tLEFT TO THE KERNEL\tPACKETS\tBYTES\n"
	for _, a := range routers {
		for _, r := range a.status.Reasons {
			if r.Packets > 0 {
				fmt.Fprintf(w, "%s%s\t%s\t%d\t%d\n", head, a.name, r.Name, r.Packets, r.Bytes)
				head = ""
			}
		}
	}
}

// routeCounts are numbers of IPv4 and IPv6 routes: those that the program
// forwards by, the router's own addresses (and what else is local: broadcast,
// multicast), and those of which packets are left to the kernel.
func routeCounts(r *fairleadv1.Router) (forwarded, own, left string) {
	var four, six, own4, own6, left4, left6 uint32
	for _, one := range r.Routes {
		switch one.Kind {
		case "forward":
			four, six = one.Ipv4, one.Ipv6
		case "local":
			own4, own6 = one.Ipv4, one.Ipv6
		default:
			left4 += one.Ipv4
			left6 += one.Ipv6
		}
	}
	count := func(four, six uint32) string { return fmt.Sprintf("%d IPv4, %d IPv6", four, six) }
	return count(four, six), count(own4, own6), count(left4, left6)
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

func tag(vlan uint32) string {
	if vlan == 0 {
		return "-"
	}
	return fmt.Sprint(vlan)
}

func portText(port int32) string {
	if port < 0 {
		return "none"
	}
	return strconv.Itoa(int(port))
}
