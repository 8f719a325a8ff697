package router

import "fmt"

// reasonNames are the reasons of FL_ROUTER_REASONS, why a packet was left to
// the kernel, as metrics and status call them.
var reasonNames = [routerFlRouterReasonFL_ROUTER_REASON_COUNT]string{
	routerFlRouterReasonFL_PASS_NOT_IP:         "not_ip",
	routerFlRouterReasonFL_PASS_MALFORMED:      "malformed",
	routerFlRouterReasonFL_PASS_INPUT:          "input",
	routerFlRouterReasonFL_PASS_OTHER_MAC:      "other_mac",
	routerFlRouterReasonFL_PASS_NOT_FORWARDING: "not_forwarding",
	routerFlRouterReasonFL_PASS_OPTIONS:        "options",
	routerFlRouterReasonFL_PASS_ADDRESS:        "address",
	routerFlRouterReasonFL_PASS_TTL:            "ttl",
	routerFlRouterReasonFL_PASS_NO_ROUTE:       "no_route",
	routerFlRouterReasonFL_PASS_LOCAL:          "local",
	routerFlRouterReasonFL_PASS_UNREACHABLE:    "unreachable",
	routerFlRouterReasonFL_PASS_CONNECTED:      "connected",
	routerFlRouterReasonFL_PASS_BEYOND:         "beyond",
	routerFlRouterReasonFL_PASS_NO_HOP:         "no_hop",
	routerFlRouterReasonFL_PASS_UNRESOLVED:     "unresolved",
	routerFlRouterReasonFL_PASS_NO_XMIT:        "no_xmit",
	routerFlRouterReasonFL_PASS_TOO_BIG:        "too_big",
	routerFlRouterReasonFL_PASS_SAME_DEVICE:    "same_device",
	routerFlRouterReasonFL_PASS_HEADROOM:       "headroom",
}

// reasonOf is why packets to a route that is not forwarded are passed.
var reasonOf = map[RouteKind]routerFlRouterReason{
	Local:       routerFlRouterReasonFL_PASS_LOCAL,
	Unreachable: routerFlRouterReasonFL_PASS_UNREACHABLE,
	Connected:   routerFlRouterReasonFL_PASS_CONNECTED,
	Beyond:      routerFlRouterReasonFL_PASS_BEYOND,
}

// ReasonName is the name of a reason's number.
func ReasonName(reason uint32) string {
	if int(reason) < len(reasonNames) {
		return reasonNames[reason]
	}
	return fmt.Sprintf("reason_%d", reason)
}
