// Package pathseltest holds bpf/include/pathsel.h to package pathsel: the
// same packets through both. Only its test does anything.
package pathseltest

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v4 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -I../../../bpf/include" -type test_packet twin ../../../bpf/pathsel/test.bpf.c
