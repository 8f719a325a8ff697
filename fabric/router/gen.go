package router

// The object is the same on every machine with clang-19, so it is committed;
// CI regenerates it and fails where a byte differs.

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v4 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -I../../bpf/include" -type fl_input_key -type fl_route4 -type fl_route6 -type fl_router_group -type fl_hop -type fl_hop_count -type fl_router_reason -type fl_route_kind -type fl_input_flags -type fl_hop_flags -type fl_how -type fl_router_count router ../../bpf/router/router.bpf.c
