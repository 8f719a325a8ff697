package dataplane

// The object is the same on every machine with clang-19, so it is committed;
// CI regenerates it and fails where a byte differs.

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v4 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -I../bpf/include" -type fl_line -type fl_line_write -type fl_vip_cpu -type fl_bucket -type fl_bound -type fl_clock -type fl_ask -type fl_count -type fl_reason -type fl_scheme -type fl_policy -type fl_forwarding -type fl_vip_flags -type fl_hash_form -type fl_flow_state -type fl_shared -type fl_flow_write -type fl_flow_sweep -type fl_steer -type fl_input lb ../bpf/lb/lb.bpf.c
