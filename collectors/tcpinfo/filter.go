package tcpinfo

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"syscall"
)

// Attributes of a request, and conditions of its program, in
// include/uapi/linux/inet_diag.h.
const (
	requestBytecode = 1 // INET_DIAG_REQ_BYTECODE

	codeJump       = 1
	codeLocalPort  = 11 // INET_DIAG_BC_S_EQ
	codeRemotePort = 12 // INET_DIAG_BC_D_EQ
	codeCgroup     = 13
)

// A Filter chooses sockets; an empty one chooses all. The kernel applies it,
// so that others are not even copied.
type Filter struct {
	Ports  []uint16 // at either end
	Cgroup uint64   // of version 2
}

// CgroupID is the number by which the kernel knows a cgroup of version 2.
func CgroupID(path string) (uint64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("looking for a cgroup: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return 0, fmt.Errorf("looking for a cgroup: %s is not a directory", path)
	}
	return stat.Ino, nil
}

// passes repeats the filter on what the kernel has sent: a destroyed socket
// comes unfiltered, and without its cgroup.
func (f Filter) passes(s *Sample) bool {
	return len(f.Ports) == 0 || slices.Contains(f.Ports, s.Tuple.Local.Port()) || slices.Contains(f.Ports, s.Tuple.Remote.Port())
}

// bytecode is the filter as the kernel's program. A condition is a code and
// two distances to jump, for yes and no; a jump to the end accepts, one of 4
// bytes beyond the end rejects.
func (f Filter) bytecode() []byte {
	var program []byte
	add := func(code, yes byte, no int, argument ...byte) {
		op := []byte{code, yes, 0, 0}
		binary.NativeEndian.PutUint16(op[2:], uint16(no))
		program = append(append(program, op...), argument...)
	}
	const port, jump, cgroup = 8, 4, 12 // lengths
	var cgroupPart int
	if f.Cgroup != 0 {
		cgroupPart = cgroup
	}
	// Of the ports each is tried at both ends; the first that is found jumps behind the ports.
	left := len(f.Ports) * 2 * (port + jump)
	for _, p := range f.Ports {
		for _, code := range []byte{codeLocalPort, codeRemotePort} {
			left -= port + jump
			no := port + jump // to the next condition
			if left == 0 {
				no = port + jump + cgroupPart + 4 // there is none: reject
			}
			argument := make([]byte, 4) // another op, whose "no" is the port
			binary.NativeEndian.PutUint16(argument[2:], p)
			add(code, port, no, argument...)
			add(codeJump, jump, jump+left)
		}
	}
	if f.Cgroup != 0 {
		add(codeCgroup, cgroup, cgroup+4, binary.NativeEndian.AppendUint64(nil, f.Cgroup)...)
	}
	return program
}
