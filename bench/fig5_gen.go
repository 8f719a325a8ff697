package bench

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-O2 -g -mcpu=v4 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -I../bpf/include -I../bpf/lb" -type script_packet -type script_run -type tracked_counts -type linear_hash -type cuckoo_bucket fig5 ../bpf/bench/fig5.bpf.c
