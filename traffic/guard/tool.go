package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A Tool is a program of others, such as iperf3, whose port is guarded: each
// socket gets its filter at the moment at which the tool binds it, so that no
// stranger is ever earlier. The kernel stops the tool there by a seccomp filter
// (SECCOMP_RET_USER_NOTIF, Linux 5.5) until the filter is attached by a copy of
// the tool's own descriptor (pidfd_getfd, Linux 5.6).
type Tool struct {
	port    Port
	over    int // an eventfd, readable once nothing is to be guarded any more
	serving sync.WaitGroup
	failure error // the first
}

// Environment is a variable that a tool should have: one in Go listens by
// Multipath TCP else, whose sockets take no filter.
const Environment = "GODEBUG=multipathtcp=0"

// Start starts a tool by a function, and guards what it and its children bind to
// the port until Close. An error is that of the function: a tool that cannot be
// guarded is started all the same, and Close tells why it was not.
func (p Port) Start(start func() error) (*Tool, error) {
	over, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	t := &Tool{port: p, over: over}
	started := make(chan error)
	t.serving.Go(func() {
		// Seccomp filters are of a thread and of what it starts. This one ends with the
		// goroutine, which must outlive the tool: a tool may die with the thread that
		// started it (PR_SET_PDEATHSIG).
		runtime.LockOSThread()
		notifications, err := notifyOfBind()
		t.fail(err)
		err = start()
		started <- err
		if err == nil {
			t.serve(notifications)
		}
		if notifications >= 0 {
			unix.Close(notifications)
		}
	})
	if err := <-started; err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Close ends guarding, once the tool has ended. It returns why the port was not
// guarded, or not all the time.
func (t *Tool) Close() error {
	unix.Write(t.over, []byte{7: 1}) // any number but 0
	t.serving.Wait()
	return errors.Join(t.failure, os.NewSyscallError("close", unix.Close(t.over)))
}

func (t *Tool) fail(err error) {
	if err != nil && t.failure == nil {
		t.failure = fmt.Errorf("port %d could not be guarded: %w", t.port.Local.Port(), err)
	}
}

// serve filters each socket that is bound, until the end.
func (t *Tool) serve(notifications int) {
	fds := []unix.PollFd{{Fd: int32(t.over), Events: unix.POLLIN}, {Fd: int32(notifications), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			t.fail(os.NewSyscallError("poll", err))
			return
		}
		if fds[0].Revents != 0 {
			return
		}
		if fds[1].Revents == 0 {
			continue
		}
		var n notification
		if err := ioctl(notifications, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); err != nil {
			if err != unix.ENOENT && err != unix.EINTR { // it was ended meanwhile
				t.fail(os.NewSyscallError("ioctl SECCOMP_IOCTL_NOTIF_RECV", err))
				return
			}
			continue
		}
		t.fail(t.port.bound(&n))
		goOn := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if err := ioctl(notifications, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&goOn)); err != nil && err != unix.ENOENT {
			t.fail(os.NewSyscallError("ioctl SECCOMP_IOCTL_NOTIF_SEND", err))
			return
		}
	}
}

// bound filters the socket that a process is about to bind, if it is to the port.
func (p Port) bound(n *notification) error {
	descriptor, address, length := int(int32(n.args[0])), uintptr(n.args[1]), min(n.args[2], unix.SizeofSockaddrInet6)
	name := make([]byte, unix.SizeofSockaddrInet6)
	local := []unix.Iovec{{Base: &name[0]}}
	local[0].SetLen(int(length))
	if _, err := unix.ProcessVMReadv(int(n.pid), local, []unix.RemoteIovec{{Base: address, Len: int(length)}}, 0); err != nil {
		return os.NewSyscallError("process_vm_readv", err)
	}
	family := binary.NativeEndian.Uint16(name)
	if family != unix.AF_INET && family != unix.AF_INET6 || binary.BigEndian.Uint16(name[2:]) != p.Local.Port() {
		return nil
	}
	process, err := processOf(int(n.pid))
	if err != nil {
		return err
	}
	pidfd, err := unix.PidfdOpen(process, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, descriptor, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_getfd", err)
	}
	defer unix.Close(fd) // else the port would stay taken when the tool closes it
	return p.Filter(fd)
}

// processOf finds the process of a thread.
func processOf(thread int) (int, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(thread) + "/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "\nTgid:")
	id, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(strings.TrimSpace(id))
}

// A notification is struct seccomp_notif.
type notification struct {
	id                 uint64
	pid, flags         uint32
	call               int32
	arch               uint32
	instructionPointer uint64
	args               [6]uint64
}

// A response is struct seccomp_notif_resp.
type response struct {
	id           uint64
	value        int64
	error, flags int32
}

// notifyOfBind makes this thread, and what it starts, ask before it binds a
// socket: at the descriptor that is returned, or -1 with an error.
func notifyOfBind() (int, error) {
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 4}, // struct seccomp_data begins with the number of the call
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_BIND, SkipFalse: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
	})
	if err != nil {
		return -1, err
	}
	// Who has not CAP_SYS_ADMIN may set filters only if it gains no rights by programs that it starts.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, os.NewSyscallError("prctl PR_SET_NO_NEW_PRIVS", err)
	}
	// Without SPEC_ALLOW older kernels slow the tool down, against attacks that nobody makes here.
	filter := fprog(program)
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, uintptr(unsafe.Pointer(filter)))
	if errno != 0 {
		return -1, os.NewSyscallError("seccomp", errno)
	}
	return int(fd), nil
}

func ioctl(fd int, request uint, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}
