package router

import (
	"github.com/fairlead/fairlead/bpf"
)

// reasonNames are the reasons of FL_ROUTER_REASONS, why a packet was left to
// the kernel, as metrics and status call them.
var reasonNames = bpf.Names[bpf.RouterReason](bpf.RouterReasonCount)

// reasonOf is why packets to a route that is not forwarded are passed.
var reasonOf = map[RouteKind]bpf.RouterReason{
	Local:       bpf.RouterPassLocal,
	Unreachable: bpf.RouterPassUnreachable,
	Connected:   bpf.RouterPassConnected,
	Beyond:      bpf.RouterPassBeyond,
}
