package host

// The object is the same on every machine with clang-19, so it is committed;
// CI regenerates it and fails where a byte differs.

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v4 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -I../bpf/include" -type fl_host_vip -type fl_host_count -type fl_host_control -type fl_host_clock -type fl_socket -type fl_tuple -type fl_count -type fl_host_peer_key -type fl_host_peer -type fl_host_source -type fl_host_own -type fl_host_ask host ../bpf/host/host.bpf.c
