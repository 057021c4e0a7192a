/*
 * User-Mode Linux up to 6.12 writes the extended registers of its processes with 2696 bytes. A kernel takes them
 * only whole, and on processors with AMX the whole is larger: "ptrace set fp regs failed, errno = 14", and no
 * process starts. This library, preloaded, completes them with zeros: state that the process does not use,
 * as the header of the registers says.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

static char whole[65536];

static long (*next)(int request, pid_t pid, void *addr, void *data);

/* How many bytes the kernel takes; 0 if it cannot be asked. */
static size_t whole_size(pid_t pid)
{
	static size_t size;
	struct iovec all = { whole, sizeof(whole) };

	if (!size && !next(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &all)) {
		size = all.iov_len;
		memset(whole, 0, sizeof(whole));
	}
	return size;
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list rest;
	pid_t pid;
	void *addr;
	struct iovec *given, all;

	va_start(rest, request);
	pid = va_arg(rest, pid_t);
	addr = va_arg(rest, void *);
	given = va_arg(rest, void *);
	va_end(rest);
	if (!next)
		next = dlsym(RTLD_NEXT, "ptrace");
	if (request != PTRACE_SETREGSET || addr != (void *)NT_X86_XSTATE || given->iov_len >= whole_size(pid))
		return next(request, pid, addr, given);
	memcpy(whole, given->iov_base, given->iov_len);
	all = (struct iovec){ whole, whole_size(pid) };
	return next(request, pid, addr, &all);
}
