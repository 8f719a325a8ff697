package dataplane

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v4 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -I../bpf/include" health ../bpf/lb/health.bpf.c
