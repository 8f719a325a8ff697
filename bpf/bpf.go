// Package bpf has what the kernel runs, as Go sees it: the compiled objects
// and, in types_bpfel.go, the structs and enums that cross between BPF C and
// Go, each once. The C is in the folders below: lb (balancer), host (server),
// router, and include, which they share. Only package kernel and those below
// it load the objects for traffic; bench and tests load their own copies.
package bpf

import "fmt"

// The objects are the same on every machine with clang-19, so they are
// committed; CI regenerates them and fails where a byte differs.

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-O2 -g -mcpu=v4 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -Iinclude" LB lb/lb.bpf.c
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-O2 -g -mcpu=v4 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -Iinclude" Health lb/health.bpf.c
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-O2 -g -mcpu=v4 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -Iinclude" Host host/host.bpf.c
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-O2 -g -mcpu=v4 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -Iinclude" Router router/router.bpf.c
//go:generate go run ./gen

// Names are the names of an enum's values below count, by number.
func Names[E interface {
	~uint32
	fmt.Stringer
}](count E) []string {
	names := make([]string, count)
	for i := range names {
		names[i] = E(i).String()
	}
	return names
}
