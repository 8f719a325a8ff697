package embedded

import "testing"

// TestMembers: who knew one member and was told of the others goes on without that one.
func TestMembers(t *testing.T) {
	t.Parallel()
	options := three(t, "http://", TLS{})
	servers := started(t, options...)
	s := opened(t, options[0].Client[0])
	put(t, s, "a", "by one")
	s.Members([]string{options[0].Client[0], options[1].Client[0], options[2].Client[0]})
	servers[0].Close()
	put(t, s, "b", "by others")
	has(t, s, "a=by one b=by others")
}
