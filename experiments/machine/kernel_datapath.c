/* Lets user-mode-linux 6.1 run on processors with AMX: LD_PRELOAD for its kernel.
 *
 * That kernel keeps 2696 bytes of a process's extended state (x87 to AVX-512), which is all that it and its programs use.
 * Reading so much is allowed, but Linux takes back only the whole: with AMX over 10 KiB, and the guest panics as its first
 * process starts. Here what it sets is completed with what the process has.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

typedef long ptrace_call(enum __ptrace_request, ...);

static char whole[1 << 16];

long ptrace(enum __ptrace_request request, ...)
{
    static ptrace_call *next;
    va_list arguments;
    va_start(arguments, request);
    pid_t pid = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *);
    void *data = va_arg(arguments, void *);
    va_end(arguments);

    if (!next)
        next = (ptrace_call *)dlsym(RTLD_NEXT, "ptrace");
    if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE) {
        const struct iovec *given = data;
        struct iovec all = { whole, sizeof whole };
        if (next(PTRACE_GETREGSET, pid, address, &all) < 0)
            return -1;
        if (given->iov_len < all.iov_len) {
            memcpy(whole, given->iov_base, given->iov_len);
            return next(request, pid, address, &all);
        }
    }
    return next(request, pid, address, data);
}
