package host

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// netnsCookie names the calling thread's network namespace as the programs
// see it.
func netnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("host agent: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("host agent: the network namespace has no cookie: %w; Linux 5.14 or newer is needed", err)
	}
	return cookie, nil
}
