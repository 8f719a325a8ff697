package bench

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v4 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -I../bpf/include -I../bpf/lb" -type fl_line_write -type fl_clock -type fl_reason -type fl_forwarding -type fl_policy -type fl_scheme -type fl_hash_form -type fl_vip_flags -type bench_flow lb ../bpf/bench/bench.bpf.c

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v4 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -I../bpf/include" -type fl_host_vip -type fl_host_control -type fl_host_peer_key -type fl_host_peer -type fl_host_source -type bench_jiffies host ../bpf/bench/host.bpf.c

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v4 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -I../bpf/include" -type fl_input_key -type fl_route4 -type fl_route6 -type fl_router_group -type fl_hop -type fl_hop_count -type fl_input_flags -type fl_route_kind -type fl_how -type bench_flow router ../bpf/bench/router.bpf.c
